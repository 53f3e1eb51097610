"""What shifting whole contexts found: which position an effect follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvphase.types import CurvePoint

__all__ = ["ConfirmStatus", "Confirmation", "Factor", "FactorName", "Tail", "TailStatus"]

FactorName = Literal["target", "question", "distance"]
ConfirmStatus = Literal[
    "follows-target",
    "follows-question",
    "follows-distance",
    "mixed",
    "not-confirmed",
    "inconclusive",
]
TailStatus = Literal["flat", "not-flat", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Factor:
    """What the residue of one position explains, the other two held fixed."""

    name: FactorName
    """The target's position, the question's, or the distance from target to question."""
    p_value: float | None
    """None where the design cannot tell this factor from the others."""
    gap_pp: float | None
    """Best minus worst residue after adjustment for contents, prefills and the other factors."""
    effect_pp: tuple[float, ...]
    """Adjusted deviation of each residue from the mean, percentage points; empty if unknown."""
    mde_pp: float | None
    """Gap of one weak residue that would have been found with 95% power."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The control: filler only after the target, so that only the question moves."""

    status: TailStatus
    margin_pp: float
    """Deviation of a residue's accuracy from the mean that still counts as flat."""
    largest_pp: float
    """Largest absolute deviation seen."""
    upper_pp: float
    """Upper 95% bound of the largest absolute deviation, simultaneous over residues."""
    curve: tuple[CurvePoint, ...]
    """Accuracy by the question's residue modulo the period."""
    n: int


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Paired contents shifted: which position an effect follows."""

    status: ConfirmStatus
    reason: str
    period: int
    factors: tuple[Factor, ...]
    """Target, question, distance."""
    curve: tuple[CurvePoint, ...]
    """Accuracy by the target's residue modulo the period, over the shifted contents."""
    tail: Tail | None
    n: int
    contexts: int
