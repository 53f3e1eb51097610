"""Accuracy by residue: what is plotted, and its extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.intervals import wilson
from kvphase.types import CurvePoint, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.types import Answers


def curve(answers: Answers, modulus: int) -> tuple[CurvePoint, ...]:
    """One point for each residue of ``position mod modulus`` that has finished answers.

    The mean log-probability is over finite values only and None where there is none, or where any
    answer at that residue is censored: a mean without its lowest values would flatter.
    """
    done = answers.where(answers.correct >= 0)
    residue = done.position % modulus
    points = []
    for r in np.unique(residue):
        here = done.where(residue == r)
        points.append(
            point(int(r), len(here), int(here.correct.sum()), _mean_logprob(here.logprob))
        )
    return tuple(points)


def point(residue: int, n: int, correct: int, logprob: float | None = None) -> CurvePoint:
    """One point of a curve with its Wilson interval; n must be positive."""
    return CurvePoint(residue, n, correct, correct / n, wilson(correct, n), logprob)


def extremes(points: Sequence[CurvePoint]) -> tuple[Phase | None, Phase | None]:
    """Worst and best residue of a curve; None without points."""
    if not points:
        return None, None
    worst = min(points, key=lambda at: (at.accuracy, at.residue))
    best = max(points, key=lambda at: (at.accuracy, -at.residue))
    return Phase(worst.residue, worst.accuracy), Phase(best.residue, best.accuracy)


def _mean_logprob(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    if not len(known) or not np.isfinite(known).all():
        return None
    return float(known.mean())
