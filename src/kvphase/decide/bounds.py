"""Confidence bounds for the worst phase and for the gap, true for every phase at once.

The phase that is worst is not known, and the lowest accuracy seen flatters nobody: it is the one
that luck treated worst. What a gate needs are bounds for the truth behind it.

*The worst phase is at least L.* Let L_r be a lower 95% bound for the accuracy of phase r alone and
L the lowest of them. Whichever phase v is truly the worst, L <= L_v, and L_v is too high in at most
5% of runs; so "every phase is at least L" is wrong in at most 5% of runs. No correction for the
number of phases is needed in this direction, and none would make it any truer: taking the lowest
bound pays for them all. (Intersection-union principle: R. L. Berger, Multiparameter hypothesis
testing and acceptance sampling, Technometrics 24, 1982.) In the same way the highest of the upper
bounds of all differences between two phases bounds the gap.

*The worst phase is at most U*, with U the lowest upper bound, is the other direction: one lucky
bound among M would make it wrong, so each is taken at 5% / M (Bonferroni). Likewise the lower bound
of the gap, over all ordered pairs of phases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.decide.phases import Tally

LEVEL = 0.05
"""Share of runs in which a bound may be wrong."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds for one curve, each wrong in at most 5% of runs."""

    worst_low: float
    """Every phase is at least this accurate (fraction)."""
    worst_high: float
    """Some phase is at most this accurate (fraction)."""
    gap_low_pp: float
    gap_high_pp: float
    """No two phases are farther apart than this, percentage points."""


def bounds(counts: Tally, of: int = 1) -> Bounds:
    """Bounds for the worst phase and for the gap, over clusters (`Tally`).

    Phases without an answer are bounded by 0 and 1. With fewer than two clusters nothing is known
    of how clusters differ, and so nothing at all: 0 to 1, 0 to 100.

    Args:
        counts: Of one curve.
        of: Curves that are looked at; any of them may fail a run, so the bounds that can do so
            are each taken at 1 / ``of`` of the level. Passing needs all of them and costs nothing.
    """
    phases = counts.n.shape[1]
    if counts.clusters < 2:
        return Bounds(0.0, 1.0, 0.0, 100.0)
    low, high = limits(counts, LEVEL)
    _, strict = limits(counts, LEVEL / phases / of)
    pairs = phases * (phases - 1) * of
    gap_high = float(differences_high(counts, low, high).max())
    apart_low, apart_high = limits(counts, LEVEL / pairs)
    # The lower bound of r minus s is the negative of the upper bound of s minus r.
    apart = -differences_high(counts, apart_low, apart_high)
    np.fill_diagonal(apart, 0.0)
    gap_low = float(apart.max())
    return Bounds(
        worst_low=float(low.min()),
        worst_high=float(strict.min()),
        gap_low_pp=100.0 * max(0.0, gap_low),
        gap_high_pp=100.0 * min(1.0, max(0.0, gap_high)),
    )


def limits(counts: Tally, level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One-sided lower and upper limits of each phase's accuracy, shape (phases,) each.

    Clopper and Pearson's exact limits at the effective number of answers: n over the design effect
    (variance over clusters against that of independent answers, never below 1), made smaller by
    (t_{n-1} / t_{J-1})^2 for the J clusters the variance was estimated from. Exact limits hold near
    0 and 1, where a normal interval would shrink to nothing just because nothing went wrong.

    Args:
        counts: At least two clusters.
        level: Chance of each single limit to be wrong.

    Source: E. L. Korn and B. I. Graubard, Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data, Survey Methodology 24 (1998).
    """
    from scipy import special

    n = counts.n.sum(axis=0)
    rate = np.nan_to_num(counts.accuracy)
    effect = design_effects(counts)
    t_clusters = float(special.stdtrit(counts.clusters - 1, 1.0 - level))
    t_answers = special.stdtrit(np.maximum(n - 1.0, 1.0), 1.0 - level)
    effective = n / effect * np.minimum(1.0, t_answers / t_clusters) ** 2
    right = rate * effective
    low = np.zeros_like(n)
    high = np.ones_like(n)
    some = (n > 0) & (right > 0)
    low[some] = special.betaincinv(right[some], (effective - right)[some] + 1.0, level)
    some = (n > 0) & (rate < 1.0)
    high[some] = special.betaincinv(right[some] + 1.0, (effective - right)[some], 1.0 - level)
    return low, high


def design_effects(counts: Tally) -> NDArray[np.float64]:
    """Variance of each phase's accuracy over that of independent answers, at least 1, (phases,).

    A phase where all is right or all is wrong shows no variance; it gets the mean effect of the
    others, since what makes answers of a context fail together need not have struck there yet.
    """
    n = np.maximum(counts.n.sum(axis=0), 1.0)
    rate = np.nan_to_num(counts.accuracy)
    binomial = rate * (1.0 - rate) / n
    varied = binomial > 0
    clustered = np.square(counts.influence()).sum(axis=0)
    clustered = clustered * counts.clusters / (counts.clusters - 1)
    effect: NDArray[np.float64] = np.ones_like(n)
    effect[varied] = np.maximum(1.0, clustered[varied] / binomial[varied])
    if varied.any():
        effect[~varied] = effect[varied].mean()
    return effect


def differences_high(
    counts: Tally, low: NDArray[np.float64], high: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Upper limits of accuracy at phase r minus accuracy at phase s, shape (phases, phases).

    From the limits of the two accuracies and the correlation of the estimates over clusters, which
    is positive where whole contexts are easy or hard (method of variance estimates recovery). The
    diagonal is -1: a phase does not differ from itself.

    Source: R. G. Newcombe, Improved confidence intervals for the difference between binomial
    proportions based on paired data, Statistics in Medicine 17 (1998), method 10 with his
    correlation; G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008).
    """
    rate = counts.accuracy
    known = ~np.isnan(rate)
    rate = np.nan_to_num(rate)
    up, down = high - rate, rate - low
    squares = np.square(up)[:, None] + np.square(down)[None, :]
    squares -= 2.0 * _correlation(counts) * up[:, None] * down[None, :]
    limit = rate[:, None] - rate[None, :] + np.sqrt(np.maximum(squares, 0.0))
    both = known[:, None] & known[None, :]
    limit = np.where(both, limit, 1.0)
    np.fill_diagonal(limit, -1.0)
    capped: NDArray[np.float64] = np.clip(limit, -1.0, 1.0)
    return capped


def _correlation(counts: Tally) -> NDArray[np.float64]:
    """Correlation of the phases' accuracies over clusters, 0 where one does not vary."""
    influence = counts.influence()
    cross = influence.T @ influence
    spread = np.sqrt(np.diag(cross))
    scale = spread[:, None] * spread[None, :]
    correlation: NDArray[np.float64] = np.where(
        scale > 0, cross / np.where(scale > 0, scale, 1.0), 0.0
    )
    return correlation


def growth(bound: float, estimate: float, limit: float) -> float | None:
    """How many times as many answers would bring ``bound`` to ``limit``.

    The distance of a bound from the truth falls with the square root of the number of answers.

    Returns:
        A factor, at least 1; None where the estimate is not on the right side of the limit, so that
        more answers would not be expected to help.
    """
    room, need = abs(estimate - limit), abs(estimate - bound)
    if (limit - bound) * (estimate - limit) < 0 or math.isclose(room, 0.0, abs_tol=1e-9):
        return None
    return max(1.0, (need / room) ** 2)
