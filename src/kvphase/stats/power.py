"""The smallest gap that a run of this size would have found."""

from __future__ import annotations

import math
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


def mde_pp(series: Series, candidates: Sequence[int], alpha: float) -> float | None:
    """Smallest gap, in percentage points, found with 95% power: worst single slot over p <= 8.

    One slot of one period lies d below all others. The score statistic is then noncentral
    chi-square with noncentrality d^2 (Ce)' V^- (Ce), where C is the centred crossproduct of the
    residue indicators and e marks the slot: the run's own positions, blocks and mean enter, and
    the least favourable slot and period count. Its critical value is that of a chi-square p value
    of alpha / (number of candidates): by Bonferroni's inequality the quantile of the smallest
    p value over candidates is not below it, as far as chi-square holds (in permutations of
    simulated screens that quantile corresponded to 16 to 21 candidates of 19). With few prefills
    the noncentral F distribution takes the place of the chi-square.

    Returns:
        None where no period up to 8 is a candidate, some residue of one has no answers (its
        weakness could not be seen at all), or the outcomes do not vary.
    """
    periods = [p for p in candidates if p <= LARGEST_PERIOD]
    worst = 0.0
    for period in periods:
        strength, rank = _weakest_slot(series, period)
        if strength <= 0.0:
            return None
        worst = max(worst, math.sqrt(_needed(series, rank, alpha / len(candidates)) / strength))
    return min(100.0 * worst, 100.0) if periods else None


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


def _needed(series: Series, rank: int, level: float) -> float:
    """Noncentrality that gives 95% power at this level."""
    from scipy import special

    n, k = series.nuisance.shape
    left = n - k - rank
    if k and left > 0:
        critical = float(special.fdtri(rank, left, 1.0 - level))
        return float(special.ncfdtrinc(rank, left, 1.0 - POWER, critical))
    critical = float(special.chdtri(rank, level))
    return float(special.chndtrinc(critical, rank, 1.0 - POWER))
