"""Is there a period, which one, and does it repeat from cycle to cycle?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.permute import TIE, p_value, projector
from kvphase.stats.score import Scores, centred, coarse_cells, indicators, scores, variance_of_one
from kvphase.stats.series import Series, cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

DOWN = 0.01
"""A multiple is kept only if what it adds to its divisor has a p value of at most this."""
UP = 0.005
"""A multiple that was not the best replaces it only below this, divided among all multiples."""
REPLICATION = 0.05
"""Largest p value of the test that one half of the cycles repeats the other.

Worked out for normal scores with 1 to 127 degrees of freedom: of truly periodic effects that the
overall test finds every second time, 4 to 6% fail; an effect that lives in one half only passes
about one time in ten.
"""


@dataclass(frozen=True, slots=True)
class Detection:
    """The overall test of one series."""

    p_value: float | None
    """Permutation p value of the smallest chi-square p value; None if nothing could be tested."""
    period: int | None
    """Best period by the period rule; None if nothing could be tested."""
    tested: tuple[int, ...]
    log_p: tuple[float, ...]
    """Logarithm of the chi-square p value of each tested period."""


def detect(series: Series, candidates: Sequence[int], rng: np.random.Generator) -> Detection:
    """Test all candidate periods at once.

    The statistic is the smallest chi-square p value over the candidates, so that periods with many
    residues and periods with few compete fairly; its null distribution comes from permuting the
    outcomes inside strata, one permutation for all candidates.
    """
    prepared = scores(series, candidates)
    if not prepared.periods:
        return Detection(1.0 if len(candidates) else None, None, (), ())
    observed = prepared.log_p(prepared.observed(series.outcome))[0]
    p = _smallest_p_value(series, prepared, series.stratum, float(observed.min()), rng)
    best = prepared.periods[int(observed.argmin())]
    return Detection(p, best, prepared.periods, tuple(float(v) for v in observed))


def name_period(series: Series, found: Detection, rng: np.random.Generator) -> int:
    """The period to report, by the period rule.

    Starts at the candidate of smallest p value; goes down to a divisor unless what the multiple
    adds to it is significant; goes up to a multiple only on strong evidence. "Adds" is tested by
    permutations that keep ``phase mod divisor`` fixed. Of several acceptable divisors the one of
    smallest p value is taken: the smallest number would win only by being too coarse to reject.
    """
    log_p = dict(zip(found.tested, found.log_p, strict=True))
    period = min(log_p, key=lambda p: (log_p[p], p))
    while enough := _sufficient_divisors(series, period, log_p, rng):
        period = min(enough, key=lambda p: (log_p[p], p))
    while strong := _needed_multiples(series, period, log_p, rng):
        period = min(strong, key=lambda q: (strong[q], q))
    return period


def _sufficient_divisors(
    series: Series, period: int, tested: Iterable[int], rng: np.random.Generator
) -> list[int]:
    """Divisors of ``period`` to which it adds nothing significant."""
    divisors = [d for d in tested if d < period and period % d == 0]
    return [d for d in divisors if added_p(series, period, d, rng, enough=20) > DOWN]


def _needed_multiples(
    series: Series, period: int, tested: Iterable[int], rng: np.random.Generator
) -> dict[int, float]:
    """Multiples of ``period`` that add something to it on strong evidence, with its p value."""
    multiples = [q for q in tested if q > period and q % period == 0]
    added = {q: added_p(series, q, period, rng, enough=10) for q in multiples}
    return {q: p for q, p in added.items() if p <= UP / len(multiples)}


def added_p(
    series: Series, period: int, given: int, rng: np.random.Generator, *, enough: int
) -> float:
    """P value of what ``period`` adds to its divisor ``given``, ``phase mod given`` held fixed."""
    conditional = scores(series, (period,), given=given)
    if not conditional.periods:
        return 1.0
    observed = float(conditional.log_p(conditional.observed(series.outcome)).min())
    cell = coarse_cells(series, given)
    return _smallest_p_value(series, conditional, cell, observed, rng, enough=enough)


def replication_p(series: Series, period: int, rng: np.random.Generator) -> float:
    """P value of the hypothesis that the pattern lives in at most one half of the cycles.

    The profile over residues is taken from the even cycles (``along // period`` even) and from the
    odd ones. With u and v the two whitened profiles, v is compared with what permuting the
    outcomes of its own half gives for the product u'v (one-sided: the same pattern, not merely
    some pattern); then the halves change roles, and the larger p value counts. Were all outcomes
    permuted at once, a strong effect in one half alone would inflate the product and pass about
    every second time; here it passes at the nominal rate.

    A truly periodic effect that the overall test has just found has u'v = (T - D) / 2 with D
    chi-square, independent of T: at 5% it fails this test rarely.
    """
    half = (series.along // period) % 2
    if len(np.unique(half)) < 2:
        return 1.0
    profiles = _half_profiles(series, period, half)
    return max(
        _agreement_p(series, half, side, profiles[1 - side], profiles[side], rng) for side in (0, 1)
    )


@dataclass(frozen=True, slots=True)
class _Half:
    """Residue contrasts of one half of the cycles."""

    columns: NDArray[np.float64]
    """Centred indicators, zero outside the half, shape (n, period)."""
    profile: NDArray[np.float64]
    """Estimated deviation of each residue, shape (period,)."""


def _half_profiles(series: Series, period: int, half: NDArray[np.int64]) -> tuple[_Half, _Half]:
    """The two halves' contrasts and least-squares profiles."""
    stratum = cells(series.stratum, half)
    spread = variance_of_one(series, stratum)
    marks = indicators(series.phase, period)
    halves = []
    for side in (0, 1):
        here = half == side
        x = centred(marks, series.weight, stratum) * here[:, None]
        covariance = (x * (series.weight * spread)[:, None]).T @ x
        profile = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True) @ (x.T @ series.outcome)
        halves.append(_Half(x, profile))
    return halves[0], halves[1]


def _agreement_p(
    series: Series,
    half: NDArray[np.int64],
    side: int,
    model: _Half,
    own: _Half,
    rng: np.random.Generator,
) -> float:
    """One-sided p value that half ``side`` follows the profile of the other half."""
    weights = own.columns @ model.profile
    draw = projector(series, cells(series.stratum, half), weights[:, None], rng)
    observed = float(weights @ series.outcome)
    slack = TIE * float(np.abs(weights * series.outcome).sum())
    return p_value(lambda size: draw(size)[:, 0] >= observed - slack, most=1_999, enough=200)


def _smallest_p_value(
    series: Series,
    prepared: Scores,
    stratum: NDArray[np.int64],
    observed: float,
    rng: np.random.Generator,
    *,
    enough: int = 30,
) -> float:
    """Permutation p value of the smallest chi-square p value."""
    draw = projector(series, stratum, prepared.matrix, rng)
    # A p value of 1 (nothing at all to see) is reached by every draw.
    limit = min(0.0, observed + TIE * (1.0 + abs(observed)))
    return p_value(lambda size: prepared.reach(draw(size), limit), enough=enough)
