"""The JSON documents kvphase writes, as pydantic models: the boundary, not used inside.

Accuracies are fractions, gaps percentage points. Fields are only ever added within a version.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

VERDICT_SCHEMA: Literal["kvphase/verdict@1"] = "kvphase/verdict@1"


class _Document(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False
    )


class GapJson(_Document):
    """Best minus worst phase."""

    raw_pp: float
    null_pp: float
    """What chance alone gives for ``raw_pp``; shown, never subtracted."""
    crossfit_pp: float | None
    ci95: tuple[float, float] | None
    over: str | None
    """What the interval is taken over."""


class PhaseJson(_Document):
    """One residue and its accuracy."""

    residue: int
    accuracy: float


class PointJson(_Document):
    """One residue of the curve."""

    residue: int
    n: int
    correct: int
    accuracy: float
    ci95: tuple[float, float]
    logprob: float | None


class AuditJson(_Document):
    """Screen answers against the same questions repeated and asked cold."""

    repeated: int
    repeat_flips: int
    cold: int
    cold_flips: int
    near_ties: int
    excess: float
    excess_lower95: float
    unfinished: int
    asked: int


class LengthJson(_Document):
    """The verdict at one context length."""

    context_tokens: int | None
    verdict: str
    period: int | None
    p_value: float | None
    mean: float
    worst: PhaseJson | None
    gap: GapJson


class TokensJson(_Document):
    """The runtime's own counts; null where it gives none."""

    prefilled: int | None
    cached: int | None
    generated: int | None


class BalanceJson(_Document):
    """Depth of the asked targets by residue."""

    residue: tuple[int, ...]
    n: tuple[int, ...]
    mean_depth: tuple[float, ...]
    sd_depth: tuple[float, ...]
    worst_mean: float
    worst_variance: float


class VerdictFile(_Document):
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
    verdict: Literal[
        "phase-sensitive", "aperiodic", "saturated", "not-detected", "inconclusive", "unreliable"
    ]
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
    tokens: TokensJson
    seconds: float | None
    n: int
    """Answers the verdict rests on."""
    contexts: int
    notes: tuple[str, ...]
    balance: BalanceJson | None
    demo: bool
    """A toy model was measured, not the reader's."""
