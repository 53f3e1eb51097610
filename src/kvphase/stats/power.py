"""The smallest gap that a run of this size would have found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.score import centred, indicators, variance_of_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.stats.series import Series

POWER = 0.95
LARGEST_PERIOD = 8
"""The statement covers single weak slots of periods up to this."""
_HALVINGS = 14
"""Of the interval from 0 to 100 points: to less than a hundredth of a point."""
_MIDPOINTS = (np.arange(400) + 0.5) / 400
"""Probabilities that stand for a distribution in an integral over it."""


def mde_pp(series: Series, candidates: Sequence[int], alpha: float) -> float | None:
    """Smallest gap, in percentage points, found with 95% power: worst single slot over p <= 8.

    One slot of one period lies d below all others. The score statistic has noncentrality
    d^2 (Ce)' V^- (Ce), where C is the centred crossproduct of the residue indicators and e marks
    the slot: the run's own positions, blocks and mean enter, and the least favourable slot and
    period count. Its critical value is that of a chi-square p value of alpha / (number of
    candidates): by Bonferroni's inequality the quantile of the smallest p value over candidates is
    not below it, as far as chi-square holds (in permutations of simulated screens that quantile
    corresponded to 16 to 21 candidates of 19). With few prefills the F distribution takes the
    place of the chi-square. Answers at the weak slot vary otherwise than the others (`_Slot`).

    Returns:
        None where no period up to 8 is a candidate, some residue of one has no answers (its
        weakness could not be seen at all), or the outcomes do not vary.
    """
    periods = [p for p in candidates if p <= LARGEST_PERIOD]
    mean = _mean(series)
    slots = []
    for period in periods:
        strength, rank = _weakest_slot(series, period)
        if strength <= 0.0:
            return None
        slots.append(_Slot(period, mean, strength, rank, _error_freedom(series, rank)))
    if not slots:
        return None
    return 100.0 * max(slot.smallest_gap(alpha / len(candidates)) for slot in slots)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One weak slot of a period, and the power of the test against it.

    V is that of a run whose answers all have the mean m. If one slot of p is right with
    probability w and the others with o, the mean staying m, the contrast of the slot with the
    others varies

        R = ((p-1) w(1-w) + o(1-o)) / (p m(1-m))

    times as much as V says, and each of the other rank - 1 contrasts r = o(1-o) / m(1-m) times: the
    variances of binomial proportions, every residue asked as often. The statistic is then close to
    (sqrt(noncentrality) + sqrt(R) z)^2 + r chi-square(rank - 1), z standard normal. Near the
    ceiling R is above 1: with m = .9 and one slot of three at .73 it is 1.5, and a noncentral
    chi-square would promise a power of 95% where 75% is had.

    Where o would exceed 1 it stays there, and w = 1 - d; the mean of such a model is below the
    run's. Where w would be below 0, o = d.
    """

    period: int
    mean: float
    strength: float
    """Noncentrality of a gap of 1, were answers to vary as this run's do."""
    rank: int
    free: int | None
    """Degrees of freedom of the error; None where the variance is known."""

    def smallest_gap(self, level: float) -> float:
        """The gap, a fraction, found with 95% power at ``level``; 1 if there is none."""
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(middle, level) >= POWER else (middle, high)
        return high

    def power(self, gap: float, level: float) -> float:
        """Probability that a gap (a fraction) is found at ``level``."""
        from scipy import special

        strong = min(1.0, max(gap, self.mean + gap / self.period))
        weak = strong - gap
        mean = strong - gap / self.period
        usual = mean * (1.0 - mean)
        if usual <= 0.0:
            return 1.0
        own = ((self.period - 1) * weak * (1 - weak) + strong * (1 - strong)) / self.period / usual
        others = max(strong * (1.0 - strong) / usual, 1e-6)
        centre = gap * math.sqrt(self.strength * self.mean * (1.0 - self.mean) / usual)
        slot = np.square(centre + math.sqrt(own) * special.ndtri(_MIDPOINTS))
        if self.free is None:
            limits = np.array([special.chdtri(self.rank, level)])
        else:
            error = special.chdtri(self.free, _MIDPOINTS) / self.free
            limits = self.rank * special.fdtri(self.rank, self.free, 1.0 - level) * error
        left = limits[:, None] - slot[None, :]
        if self.rank == 1:
            return float((left <= 0.0).mean())
        return float(special.chdtrc(self.rank - 1, np.maximum(left, 0.0) / others).mean())


def _mean(series: Series) -> float:
    """Accuracy of all answers."""
    right = series.outcome if series.counts else (series.outcome + series.fitted) * series.weight
    return float(right.sum() / max(1.0, series.weight.sum()))


def _error_freedom(series: Series, rank: int) -> int | None:
    """Degrees of freedom of the residual variance; None where V is known, or nothing is left."""
    n, k = series.nuisance.shape
    left = n - k - rank
    return left if k and left > 0 else None


def _weakest_slot(series: Series, period: int) -> tuple[float, int]:
    """Noncentrality of the least visible slot at d = 1, and the test's degrees of freedom."""
    marks = indicators(series.phase, period)
    cross, covariance = _crossproducts(series, marks)
    values, vectors = np.linalg.eigh(covariance)
    keep = values > 1e-9 * max(1e-9, float(values.max(initial=0.0)))
    if not keep.any():
        return 0.0, 0
    turned = vectors[:, keep].T @ cross
    strengths = (np.square(turned) / values[keep][:, None]).sum(axis=0)
    return float(strengths.min()), int(keep.sum())


def _crossproducts(
    series: Series, marks: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """C and V of one period's indicators, shape (period, period) each."""
    basis = series.nuisance
    if basis.shape[1]:
        x = marks - basis @ (basis.T @ marks)
        n, k = basis.shape
        variance = float(np.square(series.outcome).sum()) / max(1, n - k)
        return x.T @ x, variance * (x.T @ x)
    x = centred(marks, series.weight, series.stratum)
    spread = variance_of_one(series, series.stratum)
    cross = (x * series.weight[:, None]).T @ x
    return cross, (x * (series.weight * spread)[:, None]).T @ x
