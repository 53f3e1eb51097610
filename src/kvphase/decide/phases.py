"""Right answers by cluster and phase, and the worst phase without the luck of its choice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.types import Answers

FEWEST_CLUSTERS = 4
"""Clusters without which nothing is split in halves: two on each side."""
SPLITS = 400
"""Random splits over which a cross-fitted estimate is averaged."""
DRAWS = 2_000
"""Bootstrap draws behind the chance that an order is wrong: good to about one point."""
_CHUNK = 100
_TIE = 1e-12
"""Shares that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Answers counted by cluster (what is independent, usually a context) and phase."""

    n: NDArray[np.float64]
    """Finished answers, shape (clusters, phases)."""
    right: NDArray[np.float64]
    """Right ones among them, shape (clusters, phases)."""

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return int(self.n.shape[0])

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Right answers over answers, shape (phases,); nan where nothing was asked."""
        return _ratio(self.right.sum(axis=0), self.n.sum(axis=0))

    def influence(self) -> NDArray[np.float64]:
        """What each cluster adds to each phase's accuracy, shape (clusters, phases).

        Residuals of the ratio estimate over its denominator: their squares add up to its
        linearised variance, their products to covariances. Zero where nothing was asked.
        """
        total = np.maximum(self.n.sum(axis=0), 1.0)
        rate = self.right.sum(axis=0) / total
        parts: NDArray[np.float64] = (self.right - rate * self.n) / total
        return parts


def tally(answers: Answers, cluster: NDArray[np.int64], fold: int) -> Tally:
    """Count ``answers`` by ``cluster`` (labels, shape (n,)) and by position modulo ``fold``."""
    _, label = np.unique(cluster, return_inverse=True)
    label = label.reshape(-1)
    shape = (int(label.max(initial=-1)) + 1, fold)
    cell = label * fold + answers.position % fold
    size = shape[0] * fold
    n = np.bincount(cell, minlength=size).astype(np.float64)
    right = np.bincount(cell, weights=answers.correct, minlength=size).astype(np.float64)
    return Tally(n.reshape(shape), right.reshape(shape))


@dataclass(frozen=True, slots=True)
class Extremes:
    """Worst phase and gap, each named on one half of the clusters and measured on the other."""

    worst: float
    """Accuracy, a fraction."""
    gap_pp: float


def crossfit_extremes(counts: Tally, rng: np.random.Generator) -> Extremes | None:
    """Worst phase and gap, averaged over ``SPLITS`` random splits and both ways of each.

    The lowest of several noisy accuracies is lower than the accuracy of any phase. Named on one
    half and measured on the other it is not: where the halves cannot tell which phase is the worst,
    the estimate lies between the worst phase and the mean instead of below both.

    That holds on average, not in each run: a cluster that fails at one phase names it for its own
    half, and the other half, without that cluster, is better there than all clusters are. No worst
    phase is better than the mean, so an estimate above the mean is known to be wrong and the mean
    is taken instead. Phases that the naming half cannot tell apart are measured together: taking
    the first of them would favour residue 0.

    Returns:
        None with fewer than four clusters.
    """
    if counts.clusters < FEWEST_CLUSTERS:
        return None
    worst, gap = [], []
    for _ in range(0, SPLITS, _CHUNK):
        first, second = _halves(counts.clusters, _CHUNK, rng)
        low, span = _measured(counts, first, second)
        worst.append(low)
        gap.append(span)
    mean = float(counts.right.sum() / counts.n.sum())
    return Extremes(
        worst=min(mean, float(np.nanmean(np.concatenate(worst)))),
        gap_pp=100.0 * float(np.nanmean(np.concatenate(gap))),
    )


def chance_of_wrong_order(
    higher: Tally,
    lower: Tally,
    difference: float,
    rng: np.random.Generator,
    *,
    shared: bool,
) -> float | None:
    """Chance that the run whose worst phase came out lower really has the higher one.

    Each draw splits the clusters in two, resamples each half with replacement, names the worst
    phase of each run on one half and measures it on the other. No cluster stands on both sides of
    a split, so no phase is measured with the noise that named it. The draws' differences are
    centred on ``difference``: resampled halves name the worst phase less surely than the data did,
    which would pull both runs towards their means.

    Args:
        higher: The run of the higher cross-fitted worst phase.
        lower: The other one.
        difference: Of their cross-fitted worst phases, not negative, a fraction.
        rng: Source of splits and draws.
        shared: Rows of the two are the same contexts, to be drawn together.

    Returns:
        A fraction up to one half or a little more; None with fewer than four clusters in either.
    """
    if min(higher.clusters, lower.clusters) < FEWEST_CLUSTERS:
        return None
    draws = []
    for _ in range(0, DRAWS, _CHUNK):
        weights = _resampled(higher.clusters, _CHUNK, rng)
        other = weights if shared else _resampled(lower.clusters, _CHUNK, rng)
        draws.append(_measured(higher, *weights)[0] - _measured(lower, *other)[0])
    apart = np.concatenate(draws)
    apart = apart[np.isfinite(apart)]
    if not len(apart):
        return None
    shift = difference - float(apart.mean())
    if abs(shift) <= 2.0 * float(apart.std()) / math.sqrt(len(apart)):
        # No more than the draws' own error: it must not decide draws in which both are equal.
        shift = 0.0
    moved = apart + shift
    return float((moved < -1e-12).mean() + 0.5 * (np.abs(moved) <= 1e-12).mean())


def _measured(
    counts: Tally, first: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Worst accuracy and best minus worst of each draw, both ways averaged; shapes (draws,).

    ``first`` and ``second`` are the weights of the clusters on either side, (draws, clusters).
    """
    sides = [_ratio(side @ counts.right, side @ counts.n) for side in (first, second)]
    low, span = [], []
    for naming, measuring in (sides, sides[::-1]):
        worst = _together(np.where(np.isnan(naming), np.inf, naming), measuring)
        low.append(worst)
        span.append(_together(np.where(np.isnan(naming), np.inf, -naming), measuring) - worst)
    return (low[0] + low[1]) / 2, (span[0] + span[1]) / 2


def _together(naming: NDArray[np.float64], measuring: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of ``measuring`` over the phases where ``naming`` is lowest, shape (draws,).

    Nan where none of them was asked.
    """
    lowest = naming <= naming.min(axis=1, keepdims=True) + _TIE
    lowest &= ~np.isnan(measuring)
    return _ratio(np.where(lowest, measuring, 0.0).sum(axis=1), lowest.sum(axis=1).astype(float))


def _halves(
    clusters: int, draws: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Random splits as weights 0 and 1, two arrays of shape (draws, clusters)."""
    order = rng.random((draws, clusters)).argsort(axis=1)
    first = (order < clusters // 2).astype(np.float64)
    return first, 1.0 - first


def _resampled(
    clusters: int, draws: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Random splits, each side drawn from with replacement: how often each cluster came."""
    order = rng.random((draws, clusters)).argsort(axis=1)
    cut = clusters // 2
    sides = []
    for part in (order[:, :cut], order[:, cut:]):
        size = part.shape[1]
        times = rng.multinomial(size, np.full(size, 1.0 / size), size=draws)
        weights = np.zeros((draws, clusters))
        np.put_along_axis(weights, part, times.astype(np.float64), axis=1)
        sides.append(weights)
    return sides[0], sides[1]


def _ratio(right: NDArray[np.float64], n: NDArray[np.float64]) -> NDArray[np.float64]:
    """Right over n, nan where n is zero."""
    rate: NDArray[np.float64] = np.where(n > 0, right / np.maximum(n, 1e-300), np.nan)
    return rate


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values: rejecting those up to a keeps the chance of any false rejection below a.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal
    of Statistics 6 (1979). Valid however the tests depend on each other.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
