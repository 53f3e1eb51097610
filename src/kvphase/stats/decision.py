"""From what was measured to one of the six verdicts, always in the same order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    more: str = "questions"
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
        return Decision(
            "unreliable", seen.unreliable, "answers that repeat: see the audit, then measure again"
        )
    if seen.n == 0:
        return Decision("inconclusive", "There are no finished answers.", "any answers at all")
    if seen.p_value is not None and seen.p_value <= seen.alpha:
        return _significant(seen)
    if seen.n >= FEWEST_ANSWERS and not LOWEST_MEAN <= seen.mean <= HIGHEST_MEAN:
        return _saturated(seen)
    if seen.mde_pp is not None and seen.mde_pp <= seen.detect_pp:
        return Decision(
            "not-detected",
            f"No period among {spelled(seen.periods)} was found (p = {seen.p_value:.2g}) in "
            f"{seen.n:,} answers; a gap of {seen.mde_pp:.1f} points or more would have been.",
        )
    return _inconclusive(seen)


def _significant(seen: Evidence) -> Decision:
    if seen.replicates:
        return Decision(
            "phase-sensitive",
            f"Accuracy depends on position modulo {seen.period} (p = {seen.p_value:.2g}), the same "
            f"way in even and odd cycles; the gap is {seen.gap} points.",
        )
    return Decision(
        "aperiodic",
        f"Accuracy depends on position (p = {seen.p_value:.2g}), but the pattern modulo "
        f"{seen.period} does not repeat from cycle to cycle: this is not phase.",
        "the same content shifted by a few tokens, to see whether an effect follows the target",
    )


def _saturated(seen: Evidence) -> Decision:
    easy = seen.mean > HIGHEST_MEAN
    return Decision(
        "saturated",
        f"{100 * seen.mean:.1f}% of {seen.n:,} answers are right: too {'easy' if easy else 'hard'} "
        "for phases to differ.",
        f"{'more' if easy else 'fewer'} records or a {'longer' if easy else 'shorter'} context, so "
        "that the mean lies between 50% and 90%",
    )


def _inconclusive(seen: Evidence) -> Decision:
    if seen.mde_pp is None:
        return Decision(
            "inconclusive",
            f"The answers (n = {seen.n:,}) do not cover two full cycles of each period with "
            "right and wrong ones among them.",
            "positions over two full cycles of a period, with several answers at each residue",
        )
    more = more_needed(seen.n, seen.mde_pp, seen.detect_pp)
    return Decision(
        "inconclusive",
        f"No period was found (p = {seen.p_value:.2g}), but {seen.n:,} answers would have shown "
        f"only a gap of {seen.mde_pp:.1f} points or more, and {seen.detect_pp:g} are asked for.",
        f"about {more:,} more {seen.more}",
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
