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
    correction); the halves are independent, so the variance of the average is a quarter of the
    sum. Nothing is resampled across the split.

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
    estimates, variances = [], []
    for naming in (first, ~first):
        measured = _measured(correct, phase, cluster, naming)
        if measured is None:
            return None
        estimates.append(measured[0])
        variances.append(measured[1])
    centre = float(np.mean(estimates))
    half = float(special.stdtrit(len(names) - 2, 0.975)) * math.sqrt(sum(variances)) / 2
    return Crossfit(100 * centre, (100 * (centre - half), 100 * (centre + half)))


def _measured(
    correct: NDArray[np.float64],
    phase: NDArray[np.int64],
    cluster: NDArray[np.int64],
    naming: NDArray[np.bool_],
) -> tuple[float, float] | None:
    """Difference of the phases named where ``naming`` holds, and its variance, on the rest."""
    labels = np.unique(phase[naming])
    accuracy = [correct[naming & (phase == label)].mean() for label in labels]
    best, worst = labels[int(np.argmax(accuracy))], labels[int(np.argmin(accuracy))]
    high, low = ~naming & (phase == best), ~naming & (phase == worst)
    if not high.any() or not low.any():
        return None
    influence = np.zeros(len(correct))
    influence[high] += (correct[high] - correct[high].mean()) / high.sum()
    influence[low] -= (correct[low] - correct[low].mean()) / low.sum()
    _, label = np.unique(cluster[~naming], return_inverse=True)
    sums = np.bincount(label.reshape(-1), weights=influence[~naming])
    variance = float(np.square(sums).sum()) * len(sums) / (len(sums) - 1)
    return float(correct[high].mean() - correct[low].mean()), variance
