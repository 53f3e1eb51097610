"""How large is the gap between phases: raw, by chance alone, and without the winner's curse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.permute import projector
from kvphase.stats.score import indicators

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.stats.series import Series
    from kvphase.types import CurvePoint

NULL_DRAWS = 400
FEWEST_CLUSTERS = 4
"""Clusters without which there is no interval: two on each side of the split."""


def raw_pp(points: Sequence[CurvePoint]) -> float:
    """Best minus worst accuracy of a curve in percentage points; 0 without points."""
    if not points:
        return 0.0
    accuracies = [at.accuracy for at in points]
    return 100.0 * (max(accuracies) - min(accuracies))


def null_pp(series: Series, modulus: int, rng: np.random.Generator) -> float:
    """Mean raw gap, in percentage points, when phase does not matter.

    The outcomes are permuted inside their strata, so n, mean and clustering are this run's own.
    The best of several noisy residues always beats the worst: this is by how much.
    """
    marks = indicators(series.phase, modulus)
    size = series.weight @ marks
    marks, size = marks[:, size > 0], size[size > 0]
    if len(size) < 2:
        return 0.0
    if not series.counts:
        marks = marks * series.weight[:, None]
    right = projector(series, series.stratum, marks, rng)(NULL_DRAWS) + series.fitted @ marks
    accuracy = right / size
    return 100.0 * float((accuracy.max(axis=1) - accuracy.min(axis=1)).mean())


@dataclass(frozen=True, slots=True)
class Crossfit:
    """A gap whose phases were named on one half of the data and measured on the other."""

    pp: float
    ci95: tuple[float, float]
    named: tuple[tuple[int, int], tuple[int, int]]
    """Best and worst phase as each half named them: what ``pp`` estimates is the mean of the true
    differences of these two pairs."""


def crossfit(
    correct: NDArray[np.float64],
    phase: NDArray[np.int64],
    cluster: NDArray[np.int64],
    rng: np.random.Generator,
) -> Crossfit | None:
    """Cross-fitted gap with a t interval over clusters.

    The clusters are split in two at random. The best and the worst phase are named on one half
    and their difference measured on the other; both ways are averaged. Each half's difference is a
    ratio estimate whose variance comes from its clusters' residuals (linearised, with the J / (J-1)
    correction). Where both halves name the same phases, the two differences come from separate
    data and their variances add. Where they do not, the two are as good as one: without an effect
    both are large exactly when the halves happen to resemble each other, so they count as fully
    correlated. Nothing is resampled across the split.

    Args:
        correct: 0 or 1, shape (n,).
        phase: Labels of the phases, shape (n,).
        cluster: Labels of what is independent, shape (n,).
        rng: Source of the split.

    Returns:
        None with fewer than four clusters, or if a named phase is missing from a half.
    """
    from scipy import special

    names = rng.permutation(np.unique(cluster))
    if len(names) < FEWEST_CLUSTERS:
        return None
    first = np.isin(cluster, names[: len(names) // 2])
    ways = []
    for naming in (first, ~first):
        best, worst = _named(correct[naming], phase[naming])
        way = _measured(correct[~naming], phase[~naming], cluster[~naming], best, worst)
        if way is None:
            return None
        ways.append(way)
    centre = (ways[0].difference + ways[1].difference) / 2
    named = (ways[0].best, ways[0].worst), (ways[1].best, ways[1].worst)
    agree = named[0] == named[1]
    errors = ways[0].error, ways[1].error
    error = math.hypot(*errors) / 2 if agree else sum(errors) / 2
    half = float(special.stdtrit(len(names) - 2, 0.975)) * error
    return Crossfit(100 * centre, (100 * (centre - half), 100 * (centre + half)), named)


@dataclass(frozen=True, slots=True)
class _Way:
    """What one half says of the phases that the other half named."""

    best: int
    worst: int
    difference: float
    error: float
    """Standard error over clusters."""


def _named(correct: NDArray[np.float64], phase: NDArray[np.int64]) -> tuple[int, int]:
    """The best and the worst phase."""
    labels = np.unique(phase)
    accuracy = [correct[phase == label].mean() for label in labels]
    return int(labels[int(np.argmax(accuracy))]), int(labels[int(np.argmin(accuracy))])


def _measured(
    correct: NDArray[np.float64],
    phase: NDArray[np.int64],
    cluster: NDArray[np.int64],
    best: int,
    worst: int,
) -> _Way | None:
    """Difference of two given phases; None if one of them has no answers."""
    high, low = phase == best, phase == worst
    if not high.any() or not low.any():
        return None
    influence = np.zeros(len(correct))
    influence[high] += (correct[high] - correct[high].mean()) / high.sum()
    influence[low] -= (correct[low] - correct[low].mean()) / low.sum()
    _, label = np.unique(cluster, return_inverse=True)
    sums = np.bincount(label.reshape(-1), weights=influence)
    variance = float(np.square(sums).sum()) * len(sums) / (len(sums) - 1)
    difference = float(correct[high].mean() - correct[low].mean())
    return _Way(best, worst, difference, math.sqrt(variance))
