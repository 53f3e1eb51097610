"""The curves of one length that a gate looks at: each must be inside the limits.

A length of needles is looked at over the residues of its curve, and over those of a period that
was found if the curve's modulus would average it away. A suite is somebody's own prompts, and what
one of them rests on may stand anywhere. So three things are looked at:

- the residues of the marked spans' positions, as for needles;
- the shifts, if they are anything else: what all tasks have in common at a shift;
- where a period was found, *each task's own* worst and best residue modulo that period. Taking the
  lowest of several noisy shares makes a task look worse than it is, which is safe for passing: the
  mean of the lowest is no higher than the mean of the truly worst. It would not be safe for
  failing, so there the worst residue is named on every other cycle and measured on the cycles
  between, which can only make a task look better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvphase.decide.bounds import LEVEL, Bounds, bounds, differences_high, limits
from kvphase.decide.phases import Tally, tally
from kvphase.stats.series import cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.runs.evidence import Length, Suite
    from kvphase.types import Answers

Over = Literal["residues", "shifts", "own"]


@dataclass(frozen=True, slots=True)
class View:
    """One curve with its bounds."""

    over: Over
    """Residues of the position, shifts, or each task's own worst and best residue."""
    fold: int
    counts: Tally
    """Of ``own`` two columns: worst, best."""
    bounds: Bounds


def views(length: Length, suite: Suite | None) -> list[View]:
    """Every curve that must be inside the limits; at least one.

    Args:
        length: With its answers.
        suite: Of a shift run; None for any other.
    """
    answers = length.level
    if suite is None:
        folds = [length.modulus]
        # A period that the curve's modulus does not show would be averaged away in it.
        if length.period is not None and length.modulus % length.period:
            folds.append(length.period)
        cluster = length.cluster(answers)
        return [_by_residue(answers, cluster, fold, len(folds)) for fold in folds]
    shift = answers.pad - suite.base
    rotated = len(np.unique((answers.position - shift) % length.modulus)) > 1
    count = 1 + rotated + (length.period is not None)
    found = [_by_task(answers, length.modulus, count, "residues")]
    if rotated:
        at_shift = replace(answers, position=shift)
        found.append(_by_task(at_shift, length.modulus, count, "shifts"))
    if length.period is not None:
        found.append(_own(answers, shift, length.period, count))
    return found


def _by_residue(answers: Answers, cluster: NDArray[np.int64], fold: int, of: int) -> View:
    counts = tally(answers, cluster, fold)
    return View("residues", fold, counts, bounds(counts, of))


def _by_task(answers: Answers, fold: int, of: int, over: Over) -> View:
    counts = _once(tally(answers, answers.context, fold))
    return View(over, fold, counts, bounds(counts, of))


def _once(counts: Tally) -> Tally:
    """Every task counts once at each phase, with its share of right answers.

    Its answers there hardly differ, so that they would be no more than one even where none of them
    is wrong and no variance shows it.
    """
    asked = (counts.n > 0).astype(np.float64)
    return Tally(asked, counts.right / np.maximum(counts.n, 1.0))


def _own(answers: Answers, shift: NDArray[np.int64], period: int, of: int) -> View:
    """Each task's own worst and best residue modulo ``period``."""
    rows = tally(answers, answers.context, period)
    lowest = _once(_named(rows, rows))
    odd = (shift // period) % 2
    halves = [_half(answers, rows.clusters, period, odd == side) for side in (0, 1)]
    ways = [_named(halves[0], halves[1]), _named(halves[1], halves[0])]
    fitted = _once(Tally(ways[0].n + ways[1].n, ways[0].right + ways[1].right))
    if rows.clusters < 2:
        return View("own", period, lowest, bounds(lowest))
    low, high = limits(lowest, LEVEL)
    strict_low, strict_high = limits(fitted, LEVEL / of)
    return View(
        "own",
        period,
        lowest,
        Bounds(
            worst_low=float(low[0]),
            worst_high=float(strict_high[0]),
            gap_low_pp=100
            * max(0.0, -float(differences_high(fitted, strict_low, strict_high)[0, 1])),
            gap_high_pp=100 * min(1.0, max(0.0, float(differences_high(lowest, low, high)[1, 0]))),
        ),
    )


def _half(answers: Answers, tasks: int, period: int, mask: NDArray[np.bool_]) -> Tally:
    """Some of the answers counted by task and residue; tasks without any keep their row."""
    shape = (tasks, period)
    cell = cells(answers.context) * period + answers.position % period
    size = tasks * period
    n = np.bincount(cell[mask], minlength=size).astype(np.float64)
    right = np.bincount(cell[mask & (answers.correct == 1)], minlength=size).astype(np.float64)
    return Tally(n.reshape(shape), right.reshape(shape))


def _named(naming: Tally, measuring: Tally) -> Tally:
    """Worst and best residue of each task by ``naming``, counted in ``measuring``."""
    rate = np.where(naming.n > 0, naming.right / np.maximum(naming.n, 1.0), np.nan)
    known = naming.n.sum(axis=1) > 0
    worst = np.where(np.isnan(rate), np.inf, rate).argmin(axis=1)
    best = np.where(np.isnan(rate), -np.inf, rate).argmax(axis=1)
    at = np.stack([worst, best], axis=1)
    n, right = (np.take_along_axis(one, at, axis=1) for one in (measuring.n, measuring.right))
    return Tally(n * known[:, None], right * known[:, None])


__all__ = ["Over", "View", "views"]
