"""The tail control: filler only after the target, so that only the question moves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.confirmed import Tail
from kvphase.stats.curve import curve
from kvphase.stats.series import cells
from kvphase.types import Arm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.stats.confirmed import TailStatus
    from kvphase.types import Answers

FEWEST_CONTEXTS = 4
"""Contexts from which on they, rather than their items, are the independent units."""
LEVEL = 0.05


def tail_control(answers: Answers, period: int, margin_pp: float) -> Tail | None:
    """Is accuracy the same at every residue of the question's position?

    Each item's accuracy at a residue is compared with that item's mean over residues. The
    deviations are averaged over items, and over contexts if there are four of them; Student's t
    over these units, with Bonferroni's correction for the residues, bounds the largest one.

    ``flat``: the upper 95% bound is within the margin. ``not-flat``: some deviation differs from
    zero (simultaneous two-sided 95%) and is larger than half the margin, since a smaller one, sure
    as it may be, could not carry an effect of the size that the margin stands for.
    ``inconclusive`` otherwise, and whenever some residue was not asked at all.

    Args:
        answers: Any answers; those of arm ``tail`` count, if they are finished and their
            question's position is known.
        period: Residues of the question's position.
        margin_pp: Deviation, in percentage points, up to which a residue is like the others.

    Returns:
        None without answers.
    """
    known = (answers.arm == Arm.TAIL.value) & (answers.correct >= 0) & (answers.question >= 0)
    done = answers.where(known)
    if not len(done):
        return None
    deviation, least = _deviations(done, period)
    status, largest, upper = _judged(100 * deviation, 100 * least, margin_pp)
    points = curve(replace(done, position=done.question), period)
    if len(points) < period and status == "flat":
        status = "inconclusive"
    return Tail(status, margin_pp, largest, upper, points, len(done))


def _deviations(done: Answers, period: int) -> tuple[NDArray[np.float64], float]:
    """Mean deviation of each unit at each residue, and the least standard error to believe.

    Only items that were answered at every residue that occurs are used: each is compared with
    itself. That no answer of a few happened to differ does not show that none would; the standard
    error is taken to be at least what a single different answer would have made it.

    Returns:
        Shape (units, residues) and a number, both fractions.
    """
    residues, column = np.unique(done.question % period, return_inverse=True)
    item = cells(done.context, done.item)
    _, first = np.unique(item, return_index=True)
    n, right = np.zeros((2, len(first), len(residues)))
    np.add.at(n, (item, column.reshape(-1)), 1.0)
    np.add.at(right, (item, column.reshape(-1)), done.correct)
    whole = (n > 0).all(axis=1)
    accuracy = right[whole] / n[whole]
    deviation = accuracy - accuracy.mean(axis=1, keepdims=True)
    if not whole.any():
        return deviation, 0.0
    least = (1.0 - 1.0 / len(residues)) / float(n[whole].mean()) / len(deviation)
    context = done.context[first][whole]
    names = np.unique(context)
    if len(names) >= FEWEST_CONTEXTS:
        deviation = np.stack([deviation[context == name].mean(axis=0) for name in names])
    return deviation, least


def _judged(
    deviation: NDArray[np.float64], least: float, margin: float
) -> tuple[TailStatus, float, float]:
    """Status, largest absolute deviation and its upper bound, all in percentage points."""
    from scipy import special

    units, residues = deviation.shape
    if not units:
        return "inconclusive", 0.0, 100.0
    size = np.abs(deviation.mean(axis=0))
    largest = float(size.max())
    if units < 2 or residues < 2:
        return "inconclusive", largest, 100.0
    error = np.maximum(deviation.std(axis=0, ddof=1) / np.sqrt(units), least)
    # The side on which a residue's true deviation lies is fixed: one side is enough for a bound.
    upper = float((size + special.stdtrit(units - 1, 1 - LEVEL / residues) * error).max())
    if upper <= margin:
        return "flat", largest, upper
    sure = size > special.stdtrit(units - 1, 1 - LEVEL / (2 * residues)) * error
    status: TailStatus = "not-flat" if (sure & (size > margin / 2)).any() else "inconclusive"
    return status, largest, min(100.0, upper)
