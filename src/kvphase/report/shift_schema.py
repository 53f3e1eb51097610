"""The JSON document of ``kvphase shift``, as a pydantic model: the boundary, not used inside.

Accuracies and levels are fractions, gaps percentage points, scores natural logarithms.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kvphase.schema import Document, TokensJson, VerdictText

SHIFT_SCHEMA: Literal["kvphase/shift@1"] = "kvphase/shift@1"


class ShiftAnswerJson(Document):
    """One answer."""

    arm: str
    """``screen``: filler before the marked span; ``tail``: behind it; ``shift``: as it is or moved;
    ``cold``: without the cache."""
    family: str | None
    place: Literal["original", "head", "tail"]
    pad: int
    """Filler tokens."""
    shift: int | None
    """``pad`` minus ``base``; None for a prompt as it is."""
    target: int
    """Token position of the marked span, or of the first token that moves."""
    question: int
    """Token position of what follows the marked span and may move alone."""
    answer: str
    correct: bool | None
    """None where no answer is expected, or it was cut."""
    logprob: float | None
    """Of the expected answer; -1e9 where it was not among the scores."""
    against: float | None
    finished: bool


class ShiftTaskJson(Document):
    """One prompt with all its answers."""

    name: str
    expected: str | None
    against: str | None
    match: str
    tokens: int
    """Of the prompt as it is."""
    target: int
    start: int
    """Token position at which filler goes in."""
    families: tuple[str, ...]
    flips: bool
    """Its answers differ between shifts."""
    answers: tuple[ShiftAnswerJson, ...]


class SlotJson(Document):
    """All shifts of one residue."""

    shifts: tuple[int, ...]
    residue: int | None
    level: float


class TailFoundJson(Document):
    """The control: filler only behind the marked span."""

    status: Literal["flat", "not-flat", "inconclusive"]
    largest_pp: float
    upper_pp: float
    p_value: float


class WorstShiftJson(Document):
    """The shift with the fewest right answers."""

    shift: int
    accuracy: float


class ShiftFile(Document):
    """``kvphase shift --json``."""

    schema_: Literal["kvphase/shift@1"] = Field(SHIFT_SCHEMA, alias="schema")
    kvphase: str
    target: str
    runtime: str
    build: str | None
    model: str | None
    quant: str | None
    template: str
    thinking: str
    seed: int
    demo: bool
    partial: bool
    full: bool
    base: int
    """Filler tokens at shift 0."""
    verdict: VerdictText
    reason: str
    would_settle: str | None
    measure: Literal["score", "right", "groups", "mixed"]
    shifts: int
    """Shifts the verdict rests on."""
    p_value: float | None
    period: int | None
    slots: tuple[SlotJson, ...]
    gap_pp: float | None
    swing: float | None
    mde_pp: float | None
    tail: TailFoundJson | None
    agree_p: float | None
    flipped: int
    """Tasks whose answers differ between shifts."""
    mean: float | None
    worst: WorstShiftJson | None
    notes: tuple[str, ...]
    tasks: tuple[ShiftTaskJson, ...]
    tokens: TokensJson
    seconds: float
