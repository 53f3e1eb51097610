"""The JSON documents kvphase writes, as pydantic models: the boundary, not used inside.

Accuracies are fractions, gaps percentage points. Fields are only ever added within a version.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

VERDICT_SCHEMA: Literal["kvphase/verdict@1"] = "kvphase/verdict@1"


VerdictText = Literal[
    "phase-sensitive", "aperiodic", "saturated", "not-detected", "inconclusive", "unreliable"
]


class Document(BaseModel):
    """What every document and every part of one has in common."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False
    )


class GapJson(Document):
    """Best minus worst phase."""

    raw_pp: float
    null_pp: float
    """What chance alone gives for ``raw_pp``; shown, never subtracted."""
    crossfit_pp: float | None
    ci95: tuple[float, float] | None
    over: str | None
    """What the interval is taken over."""


class PhaseJson(Document):
    """One residue and its accuracy."""

    residue: int
    accuracy: float


class PointJson(Document):
    """One residue of the curve."""

    residue: int
    n: int
    correct: int
    accuracy: float
    ci95: tuple[float, float]
    logprob: float | None


class AuditJson(Document):
    """Screen answers against the same questions repeated and asked cold."""

    repeated: int
    repeat_flips: int
    cold: int
    cold_flips: int
    near_ties: int
    alone: int
    alone_flips: int
    excess: float
    excess_lower95: float
    unfinished: int
    asked: int


class TokensJson(Document):
    """The runtime's own counts; null where it gives none."""

    prefilled: int | None
    cached: int | None
    generated: int | None


class BalanceJson(Document):
    """Depth of the asked targets by residue."""

    residue: tuple[int, ...]
    n: tuple[int, ...]
    mean_depth: tuple[float, ...]
    sd_depth: tuple[float, ...]
    worst_mean: float
    worst_variance: float


class LookJson(Document):
    """One look at the answers so far, while more were still to come."""

    n: int
    p_value: float | None
    weight: float


class LengthJson(Document):
    """One rung of the ladder: the completion flip, or the needles at one context length."""

    rung: str
    """``flip``, or ``needle-TOKENS``; ``imported`` for analysed results."""
    context_tokens: int | None
    """None for the flip, whose prompts differ in length."""
    design: str
    records: int | None
    modulus: int
    adapted: bool
    """The number of records was chosen on a pilot."""
    partial: bool
    verdict: VerdictText
    reason: str
    would_settle: str | None
    period: int | None
    p_value: float | None
    mean: float
    worst: PhaseJson | None
    best: PhaseJson | None
    mde_pp: float | None
    gap: GapJson
    curve: tuple[PointJson, ...]
    n: int
    contexts: int
    looks: tuple[LookJson, ...]
    fresh: bool = False
    """Level, curve and gap come only from answers asked after the look that found something."""
    audit: AuditJson
    notes: tuple[str, ...]
    balance: BalanceJson | None
    tokens: TokensJson
    seconds: float | None


class SkippedJson(Document):
    """A rung that was not climbed, and why."""

    rung: str
    why: str


class FactorJson(Document):
    """What the residue of one position explains, the other two held fixed."""

    name: Literal["target", "question", "distance"]
    p_value: float | None
    gap_pp: float | None
    effect_pp: tuple[float, ...]
    mde_pp: float | None


class TailJson(Document):
    """Filler only after the target: accuracy should stay flat."""

    status: Literal["flat", "not-flat", "inconclusive"]
    margin_pp: float
    largest_pp: float
    upper_pp: float
    curve: tuple[PointJson, ...]
    n: int


class ConfirmJson(Document):
    """The same contents shifted: which position an effect follows."""

    rung: str
    """The rung whose finding was confirmed or not."""
    status: Literal[
        "follows-target",
        "follows-question",
        "follows-distance",
        "mixed",
        "not-confirmed",
        "inconclusive",
    ]
    reason: str
    period: int
    factors: tuple[FactorJson, ...]
    curve: tuple[PointJson, ...]
    tail: TailJson | None
    n: int
    contexts: int
    partial: bool


class UnusableJson(Document):
    """Entries of a file that were not measured, and why."""

    why: str
    count: int
    line: int
    """Of the first of them."""


class DatasetJson(Document):
    """A file of test prompts, and where its facts stand in the prompts as they are."""

    file: str
    format: str
    digest: str
    """Of its prompts, facts and answers, whatever the file is called."""
    entries: int
    drawn: int
    """Entries that were looked at: all, or a random thousand."""
    usable: int
    unusable: tuple[UnusableJson, ...]
    facts: int
    residues: dict[str, tuple[int, ...]]
    """For each modulus the number of facts at each residue."""
    spread: Literal["locked", "uneven", "few", "spread"]
    at: tuple[int, int, int] | None
    """Where locked: modulus, residue, facts there."""
    prompts: int
    """Prompts that were shifted."""
    mean_as_is: float | None
    """Share of right answers to the prompts as they stand; null before the first."""
    n_as_is: int


class VerdictFile(Document):
    """``verdict.json``: everything a reader needs to trust or repeat a measurement."""

    schema_: Literal["kvphase/verdict@1"] = Field(VERDICT_SCHEMA, alias="schema")
    kvphase: str
    target: str
    runtime: str | None
    build: str | None
    model: str | None
    quant: str | None
    template: str | None
    thinking: str | None
    labels: dict[str, str]
    design: str
    context_tokens: int | None
    records: int | None
    modulus: int
    seed: int
    adapted: bool
    partial: bool
    rotation_known: bool
    verdict: VerdictText
    reason: str
    would_settle: str | None
    measure: str
    alpha: float
    period: int | None
    p_value: float | None
    gap: GapJson
    mean: float
    worst: PhaseJson | None
    best: PhaseJson | None
    mde_pp: float | None
    curve: tuple[PointJson, ...]
    audit: AuditJson
    per_length: tuple[LengthJson, ...]
    """Every rung that was measured, in the order climbed; the verdict above rests on ``rung``."""
    rung: str
    skipped: tuple[SkippedJson, ...]
    confirm: ConfirmJson | None
    looks: tuple[LookJson, ...]
    fresh: bool = False
    traffic: bool | None
    """Whether somebody else used the server meanwhile; null where it does not tell."""
    digest: str | None
    """Digest of design, seed, model and answers: what a picture of this run can be checked by."""
    tokens: TokensJson
    seconds: float | None
    n: int
    """Answers the verdict rests on."""
    contexts: int
    notes: tuple[str, ...]
    balance: BalanceJson | None
    demo: bool
    """A toy model was measured, not the reader's."""
    dataset: DatasetJson | None = None
    """The file whose prompts were asked; null where the prompts were composed."""
