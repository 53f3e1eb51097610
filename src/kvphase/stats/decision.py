"""From what was measured to one of the six verdicts, always in the same order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvphase.catalogue import message

if TYPE_CHECKING:
    from kvphase.types import VerdictName

LOWEST_MEAN, HIGHEST_MEAN = 0.03, 0.97
FEWEST_ANSWERS = 20
"""Below this nothing is said about the mean: three right answers are not "too easy"."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the verdict depends on."""

    unreliable: str | None
    """Why the answers cannot be trusted, or None."""
    n: int
    mean: float
    alpha: float
    detect_pp: float
    p_value: float | None
    period: int | None
    replicates: bool
    gap: str
    """The gap to speak of, in points."""
    mde_pp: float | None
    periods: tuple[int, ...] = ()
    """Periods that were tested."""
    more: Literal["questions", "answers"] = "questions"
    """What to collect more of."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict in words."""

    verdict: VerdictName
    reason: str
    would_settle: str | None = None


def decide(seen: Evidence) -> Decision:
    """Apply the rules in their fixed order.

    Unreliable, phase-sensitive or aperiodic, saturated, not-detected, inconclusive.
    """
    if seen.unreliable:
        return Decision("unreliable", seen.unreliable, message("verdict.settle.unreliable"))
    if seen.n == 0:
        return Decision(
            "inconclusive", message("verdict.reason.empty"), message("verdict.settle.empty")
        )
    if seen.p_value is not None and seen.p_value <= seen.alpha:
        return _significant(seen)
    if seen.n >= FEWEST_ANSWERS and not LOWEST_MEAN <= seen.mean <= HIGHEST_MEAN:
        return _saturated(seen)
    if seen.mde_pp is not None and seen.mde_pp <= seen.detect_pp:
        reason = message(
            "verdict.reason.not-detected",
            periods=spelled(seen.periods),
            p=seen.p_value,
            n=seen.n,
            mde=seen.mde_pp,
        )
        return Decision("not-detected", reason)
    return _inconclusive(seen)


def _significant(seen: Evidence) -> Decision:
    if seen.replicates:
        reason = message(
            "verdict.reason.phase-sensitive", period=seen.period, p=seen.p_value, gap=seen.gap
        )
        return Decision("phase-sensitive", reason)
    return Decision(
        "aperiodic",
        message("verdict.reason.aperiodic", period=seen.period, p=seen.p_value),
        message("verdict.settle.aperiodic"),
    )


def _saturated(seen: Evidence) -> Decision:
    how = "easy" if seen.mean > HIGHEST_MEAN else "hard"
    return Decision(
        "saturated",
        message(f"verdict.reason.saturated-{how}", percent=100 * seen.mean, n=seen.n),
        message(f"verdict.settle.saturated-{how}"),
    )


def _inconclusive(seen: Evidence) -> Decision:
    if seen.mde_pp is None:
        return Decision(
            "inconclusive",
            message("verdict.reason.not-covered", n=seen.n),
            message("verdict.settle.not-covered"),
        )
    more = more_needed(seen.n, seen.mde_pp, seen.detect_pp)
    return Decision(
        "inconclusive",
        message(
            "verdict.reason.inconclusive",
            p=seen.p_value,
            n=seen.n,
            mde=seen.mde_pp,
            detect=seen.detect_pp,
        ),
        message(f"verdict.settle.more-{seen.more}", more=more, detect=seen.detect_pp),
    )


def spelled(periods: tuple[int, ...]) -> str:
    """Periods with runs of three and more shortened: ``2-16, 24, 32``."""
    runs: list[list[int]] = []
    for period in sorted(periods):
        if runs and period == runs[-1][-1] + 1:
            runs[-1].append(period)
        else:
            runs.append([period])
    parts = [f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs]
    return ", ".join(parts)


def more_needed(n: int, mde_pp: float, detect_pp: float) -> int:
    """Answers still missing until a gap of ``detect_pp`` shows, rounded up to two digits.

    The detectable gap falls with the square root of n.
    """
    missing = max(1.0, n * ((mde_pp / detect_pp) ** 2 - 1.0))
    unit: int = 10 ** max(0, math.floor(math.log10(missing)) - 1)
    return math.ceil(missing / unit) * unit
