"""The types that every floor of kvphase shares.

Positions are absolute token indices in the final prompt, template and BOS included, from 0.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

R = TypeVar("R")

DesignKind = Literal["insequence", "prefix"]
VerdictName = Literal[
    "phase-sensitive", "aperiodic", "saturated", "not-detected", "inconclusive", "unreliable"
]


class Arm(enum.StrEnum):
    """What an ask is for. Verdicts come from the screen; the others are controls or audits."""

    PILOT = "pilot"
    """Sets the difficulty or times the server; its answers are never measured."""
    SCREEN = "screen"
    """The measurement itself: a question on the shared, cached prefix."""
    SHIFT = "shift"
    """The same content moved by a few tokens (confirm, and a user's own prompt)."""
    TAIL = "tail"
    """Filler only after the target: the control for the prompt's length."""
    REPEAT = "repeat"
    """A screen ask sent again, unchanged: how repeatable the runtime is."""
    COLD = "cold"
    """A screen ask with a prefill of its own: whether the prefix cache changes answers."""
    ALONE = "alone"
    """A screen ask sent while nothing else runs: whether batching changes answers."""
    SPLIT = "split"
    """A screen ask whose prompt was prefilled in two pieces that meet at `Ask.cut`."""
    DECODE = "decode"
    """An ask of several answer tokens, all but the last of which are generated and then given."""
    TOGETHER = "together"
    """A screen ask sent while another request is under way: whether batching changes answers."""
    SAMPLED = "sampled"
    """A screen ask answered with the endpoint's own sampling settings instead of greedily."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to a model; the unit of everything that is stored and resumed."""

    id: str
    """Digest of the design, the seed, the ordinal and the arm."""
    prefix: tuple[int, ...]
    """Token ids shared by many asks, BOS and template head included."""
    suffix: tuple[int, ...]
    """Token ids of this question (and the template's tail)."""
    target: int
    """Index of the target's key in ``prefix + suffix``."""
    expected: str
    """The right answer's text, as the tokenizer spells it (leading space included)."""
    candidates: tuple[str, ...]
    """Answers whose scores are of interest: the expected one, then a tempting wrong one if any."""
    arm: Arm
    item: int
    """Pairs the same content at other positions, and a screen ask with its repeats."""
    block: int
    """Exchangeability block: outcomes may be permuted only inside (context, block)."""
    context: int
    """Which content the prefix was made from; the cluster of every interval."""
    pad: int
    """Filler tokens before the content: the start offset of the prefix."""
    generate: int = 1
    """Answer tokens to generate."""
    question: int | None = None
    """Index of the question's first token in ``prefix + suffix``; None where there is none."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """The whole prompt as token ids."""
        return self.prefix + self.suffix

    @property
    def cut(self) -> int:
        """Where `Arm.SPLIT` parts the prompt: behind the target's key, inside a group of four."""
        cut = self.target + 1
        return cut if cut % 4 else cut + 1


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered to one ask, with the runtime's own account of its work."""

    text: str
    logprob: float | None = None
    """Natural log-probability of ``expected`` as the next token, before sampling, at temperature
    1 over the full vocabulary; None where the runtime gives none, -inf where it was censored."""
    against: float | None = None
    """Log-probability of the tempting wrong answer, as ``logprob``; None without one."""
    margin: float | None = None
    """Log-probability of the best next token minus that of the second: small means a near tie."""
    finished: bool = True
    """False when the answer was cut; such an answer is its own outcome, never wrong."""
    prefilled: int | None = None
    """Prompt tokens evaluated for this ask, by the runtime's own count."""
    cached: int | None = None
    """Prompt tokens taken from the runtime's cache, by its own count."""
    generated: int = 0
    seconds: float = 0.0
    """Wall time of the request."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Columns of answered asks in ask order; every array has shape (n,)."""

    position: NDArray[np.int64]
    """Absolute index of the target's key."""
    correct: NDArray[np.int8]
    """1 right, 0 wrong, -1 unfinished."""
    logprob: NDArray[np.float64]
    """Of the expected answer; nan unknown, -inf censored."""
    item: NDArray[np.int64]
    block: NDArray[np.int64]
    context: NDArray[np.int64]
    pad: NDArray[np.int64]
    arm: NDArray[np.str_]
    text: NDArray[np.str_]
    """The answers themselves, to compare a repeat with its original."""
    margin: NDArray[np.float64]
    """Best minus second log-probability; nan unknown."""
    question: NDArray[np.int64]
    """Absolute index of the question's first token; -1 unknown."""
    against: NDArray[np.float64]
    """Log-probability of the tempting wrong answer; nan unknown, -inf censored."""

    def __len__(self) -> int:
        return int(self.position.shape[0])

    def where(self, mask: NDArray[np.bool_]) -> Answers:
        """The rows where ``mask`` (shape (n,)) is true, in the same order."""
        return Answers(*(getattr(self, column.name)[mask] for column in fields(self)))

    def join(self, other: Answers) -> Answers:
        """These rows, then those of ``other``."""
        import numpy as np

        pairs = ((getattr(self, c.name), getattr(other, c.name)) for c in fields(self))
        return Answers(*(np.concatenate(pair) for pair in pairs))


Flow = Generator[Sequence[Ask], Answers, R]
"""A probe or a cause: yields asks, receives their answers, does no I/O."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a runtime can do, as far as the measurement depends on it."""

    context_tokens: int
    """Prompt plus answer tokens that fit."""
    ids: bool = True
    """Prompts are accepted as token ids."""
    top_logprobs: int = 0
    """Next-token scores returned; 0 none, a vocabulary's size all."""
    cache_report: bool = True
    """The runtime says how many prompt tokens came from its cache."""
    cold: bool = True
    """One request can be made to ignore the cache."""
    local_window: int | None = None
    """Tokens that stay uncompressed near the query, where the runtime knows."""
    bos: tuple[int, ...] = ()
    """The ids that every prompt of this model starts with: BOS exactly once, or nothing."""
    tokenizer: str = ""
    """Whose tokenizer counts, as it may be shown; empty for the endpoint's own."""
    counted: bool = True
    """Every answer tells how many tokens its prompt had."""
    offset_known: bool = True
    """Positions are those of the final prompt; else right up to an unknown constant."""
    concurrency: int = 1
    """Questions on one cached prefix that may be under way at once."""
    controls: frozenset[Arm] = frozenset()
    """Which of split, decode, together and sampled this endpoint can be asked for."""


@dataclass(frozen=True, slots=True)
class About:
    """What an endpoint says it is. Never holds keys, host names or home directories."""

    target: str
    """The target as it may be shown: host names replaced unless they are loopback."""
    runtime: str
    build: str | None = None
    model: str | None = None
    quant: str | None = None
    template: str = "none"
    """none, or a digest of the chat template that was used."""
    thinking: str = "off"
    toy: bool = False
    """The endpoint runs a toy model; everything made with it says so."""
    extra: dict[str, str] = field(default_factory=dict)
    """Further lines for ``kvphase info``."""


@runtime_checkable
class Runtime(Protocol):
    """One way to reach a model. Open it as an asynchronous context manager before use."""

    @property
    def about(self) -> About:
        """What the endpoint is."""
        ...

    @property
    def limits(self) -> Limits:
        """What the endpoint can do."""
        ...

    @property
    def traffic(self) -> int | None:
        """Signs of other people's work that were seen so far; None if the endpoint cannot tell."""
        ...

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        ...

    async def template(self) -> Template:
        """The chat template as this endpoint renders it, thinking off, split at the user's text.

        Raises:
            UsageError: the endpoint has none.
        """
        ...

    async def complete(self, ask: Ask) -> Reply:
        """Answer one ask.

        Raises:
            TransientFault: the request failed and may be asked again cheaply.
            RuntimeFault: the endpoint is unusable for this measurement.
        """
        ...


@dataclass(frozen=True, slots=True)
class Word:
    """One token of a tokenizer and its text."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Vocab:
    """The one-token words of one tokenizer that prompts are composed from; every seam tested.

    A record is ``key separator value terminator``, four tokens; a question is ``key separator``.
    """

    keys: tuple[Word, ...]
    values: tuple[Word, ...]
    phrases: tuple[tuple[Word, ...], ...]
    """Fillers: ordinary words in a natural order, to be cut to the length needed."""
    separator: Word
    terminator: Word
    digest: str
    """Digest of the ids above: the tokenizer's fingerprint in the run file."""


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template as the server rendered it, split around the user's text."""

    head: tuple[int, ...] = ()
    """Ids before the user's text, without BOS."""
    tail: tuple[int, ...] = ()
    """Ids after the user's text, up to where the answer begins."""
    head_text: str = ""
    """What ``head`` spells, without BOS."""
    tail_text: str = ""
    digest: str = "none"


@dataclass(frozen=True, slots=True)
class Gap:
    """Best minus worst phase, in percentage points."""

    raw_pp: float
    null_pp: float
    """What chance alone gives for ``raw_pp`` at this n and mean."""
    crossfit_pp: float | None = None
    ci95: tuple[float, float] | None = None
    over: str | None = None
    """What the interval is taken over: contexts, blocks in this context, ..."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Accuracy at one residue of the target's position."""

    residue: int
    n: int
    correct: int
    accuracy: float
    ci95: tuple[float, float]
    """Wilson's interval."""
    logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """One residue and its accuracy."""

    residue: int
    accuracy: float


@dataclass(frozen=True, slots=True)
class Audit:
    """Screen answers against the same question repeated and asked cold."""

    repeated: int = 0
    repeat_flips: int = 0
    cold: int = 0
    cold_flips: int = 0
    near_ties: int = 0
    """Cold flips whose two best next tokens lay within the near-tie margin."""
    alone: int = 0
    alone_flips: int = 0
    excess: float = 0.0
    """Disagreement of cold asks beyond that of plain repeats (fraction)."""
    excess_lower95: float = 0.0
    unfinished: int = 0
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the answers so far, while more were still to come."""

    n: int
    """Screen answers seen."""
    p_value: float | None
    weight: float
    """Share of the level that this look may spend; the weights of all looks add up to 1."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``measure`` found. Accuracies are fractions, gaps percentage points."""

    verdict: VerdictName
    reason: str
    would_settle: str | None
    measure: str
    alpha: float
    modulus: int
    period: int | None
    p_value: float | None
    gap: Gap
    mean: float
    worst: Phase | None
    best: Phase | None
    mde_pp: float | None
    curve: tuple[CurvePoint, ...]
    audit: Audit
    n: int
    contexts: int
    notes: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()
    """Looks that were taken, in order; empty where all answers were tested once."""
    fresh: bool = False
    """Level, curve and gap come only from answers asked after the look that found something."""
