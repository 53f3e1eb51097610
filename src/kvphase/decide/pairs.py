"""Two runs against each other: does their difference depend on phase, and how large is it?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.decide.phases import FEWEST_CLUSTERS, Tally
from kvphase.stats.permute import TIE, p_value
from kvphase.stats.score import Scores, scores
from kvphase.stats.series import (
    Series,
    cells,
    per_answer,
    per_prefill,
    screen_candidates,
    sweep_candidates,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.types import Answers


@dataclass(frozen=True, slots=True)
class Pattern:
    """The test that the difference of two runs depends on the residue of the position."""

    p_value: float | None
    """None where nothing could be tested."""
    period: int | None
    """The period of smallest p value, to be believed only if the test is significant."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A difference with its interval, percentage points."""

    pp: float
    low: float
    high: float
    p_value: float
    """Two-sided, of Student's t."""


def pattern_paired(
    first: Answers,
    second: Answers,
    kind: str,
    modulus: int,
    rng: np.random.Generator,
    cluster: NDArray[np.int64] | None = None,
) -> Pattern:
    """Test whether paired differences (right in the first minus right in the second) have a period.

    The statistic is the smallest chi-square p value over the candidate periods, as in the test of
    one run. Its null distribution comes from exchanging the two runs: if they differ in nothing but
    luck, all differences of a block may change their sign together. Signs are drawn for whole
    (context, block) cells in sequence, for whole prefills otherwise, so answers that stand or fall
    together do no harm, and unlike a permutation of the differences over residues it stays exact
    where both runs are equally phase-sensitive: there the differences have no mean at any residue
    but a much larger variance at a weak one. A plain difference of levels makes it conservative,
    not wrong, since the statistic is centred within blocks.

    Args:
        first: Answers to the shared questions.
        second: Answers to the same questions in the same order.
        kind: ``insequence``; ``suite``, whose unit is the task with all its shifts; or any design
            whose unit is the prefill.
        modulus: Of the runs' curves.
        rng: Source of the signs.
        cluster: What contexts share their requests with, shape (n,); themselves if not given.
    """
    if kind == "insequence":
        series = per_answer(first)
        series = replace(series, outcome=series.outcome - second.correct)
        return _tested(series, screen_candidates(series), series.stratum, None, rng)
    (series, shared), (other, _) = per_prefill(first, modulus), per_prefill(second, modulus)
    series = replace(series, outcome=series.outcome - other.outcome)
    units = series.stratum if kind == "suite" else _requests(first, cluster)
    return _tested(series, sweep_candidates(series, shared), units, None, rng)


def _requests(answers: Answers, cluster: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The request of each row of `per_prefill`, shape (rows,): one may answer several contexts."""
    rows = cells(answers.context, answers.pad)
    _, first = np.unique(rows, return_index=True)
    shared = answers.context if cluster is None else cluster
    return cells(shared[first], answers.pad[first])


def pattern_unpaired(
    first: Answers,
    second: Answers,
    kind: str,
    modulus: int,
    rng: np.random.Generator,
    *,
    counts: bool = False,
) -> Pattern:
    """Test whether two runs on different questions have different patterns.

    The statistic compares the two profiles over residues. Each block (or prefill) contributes its
    centred profile; its run's mean profile is taken out, and the rest changes its sign at random
    (wild bootstrap). This allows runs of different variance and size, but holds only approximately
    with few blocks.

    Args:
        first: One run's answers.
        second: The other's.
        kind: As for `pattern_paired`.
        modulus: Of the runs' curves.
        rng: Source of the signs.
        counts: Of one run only counts by residue are known: positions are taken modulo
            ``modulus``, answers as independent, and divisors of the modulus are the candidates.

    Source: C. F. J. Wu, Jackknife, bootstrap and other resampling methods in regression analysis,
    Annals of Statistics 14 (1986); two-point signs after R. Y. Liu, Annals of Statistics 16 (1988).
    """
    if counts:
        first, second = (_reduced(answers, modulus) for answers in (first, second))
    apart = int(first.context.max(initial=-1)) + 1
    both = first.join(replace(second, context=second.context + apart))
    if kind == "insequence" or counts:
        series = per_answer(both)
        own = both.context < apart
        divisors = tuple(p for p in range(2, modulus + 1) if modulus % p == 0)
        candidates = divisors if counts else screen_candidates(series)
        units = np.arange(len(both), dtype=np.int64) if counts else series.stratum
    else:
        series, shared = per_prefill(both, modulus)
        # Strata are numbered by context, and the second run's contexts come last.
        own = series.stratum < len(np.unique(first.context))
        candidates = sweep_candidates(series, shared)
        units = series.stratum if kind == "suite" else np.arange(len(series), dtype=np.int64)
    # Means, not sums: one run may hold more answers than the other.
    scale = np.where(own, len(own) / max(1, own.sum()), -len(own) / max(1, (~own).sum())) / 2
    series = replace(series, outcome=series.outcome * scale)
    return _tested(series, candidates, units, own, rng)


def _reduced(answers: Answers, modulus: int) -> Answers:
    """Only residues: one stratum, no contexts."""
    none = np.zeros(len(answers), np.int64)
    return replace(answers, position=answers.position % modulus, context=none, block=none)


def _tested(
    series: Series,
    candidates: Sequence[int],
    unit: NDArray[np.int64],
    own: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> Pattern:
    """Random signs of whole units; ``own`` marks the first of two runs on different questions."""
    if not len(series) or not candidates:
        return Pattern(None, None)
    prepared = scores(series, candidates)
    if not prepared.periods:
        # Nothing differs anywhere: as little evidence of a difference as there can be.
        return Pattern(1.0, None)
    parts = _by_unit(series, prepared, unit)
    observed = prepared.log_p(parts.sum(axis=0)[None, :])[0]
    if own is not None:
        parts = _without_means(parts, _of_units(own, unit))
    limit = float(observed.min()) + TIE * (1.0 + abs(float(observed.min())))

    def as_extreme(size: int) -> NDArray[np.bool_]:
        signs = rng.integers(2, size=(size, len(parts))) * 2.0 - 1.0
        hit: NDArray[np.bool_] = prepared.log_p(signs @ parts).min(axis=1) <= limit
        return hit

    return Pattern(p_value(as_extreme), prepared.periods[int(observed.argmin())])


def _by_unit(series: Series, prepared: Scores, unit: NDArray[np.int64]) -> NDArray[np.float64]:
    """What each unit adds to every column of the statistics, shape (units, columns).

    The columns are centred in strata, so centring the outcomes changes no sum over a stratum; it
    takes the level out of units that are smaller.
    """
    size = np.bincount(series.stratum)
    mean = np.bincount(series.stratum, weights=series.outcome) / np.maximum(size, 1)
    rows = prepared.matrix * (series.outcome - mean[series.stratum])[:, None]
    label = cells(unit)
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    sums: NDArray[np.float64] = np.add.reduceat(rows[order], starts, axis=0)
    return sums


def _of_units(own: NDArray[np.bool_], unit: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which units are of the first run, shape (units,)."""
    _, first = np.unique(unit, return_index=True)
    return own[first]


def _without_means(parts: NDArray[np.float64], own: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Units less their run's mean, scaled up by what estimating it took from their variance."""
    centred = parts.copy()
    for side in (own, ~own):
        n = int(side.sum())
        if n > 1:
            centred[side] = (parts[side] - parts[side].mean(axis=0)) * math.sqrt(n / (n - 1))
    return centred


def mean_difference(first: Tally, second: Tally, level: float, *, paired: bool) -> Estimate | None:
    """Difference of mean accuracy, first minus second, with a t interval over clusters.

    Args:
        first: One run.
        second: The other; its rows are the same clusters if ``paired``.
        level: One minus the confidence of the interval.
        paired: Same questions: what a cluster adds to both cancels.

    Returns:
        None with fewer than two clusters in either.
    """
    if min(first.clusters, second.clusters) < 2:
        return None
    rates, parts = [], []
    for run in (first, second):
        n, right = run.n.sum(), run.right.sum()
        rates.append(right / n)
        parts.append((run.right.sum(axis=1) - right / n * run.n.sum(axis=1)) / n)
    return _estimate(
        float(rates[0] - rates[1]), _error(*parts, paired=paired), level, first, second
    )


def gap_difference(
    first: Tally,
    second: Tally,
    level: float,
    rng: np.random.Generator,
    *,
    paired: bool,
) -> Estimate | None:
    """Difference of gaps, first minus second, with phases named and measured on separate halves.

    As the gap of one run (`kvphase.stats.gap.crossfit`): best and worst phase of each run are named
    on one half of the clusters and their difference measured on the other, both ways averaged.
    Where both halves name the same phases in both runs the two ways come from separate data, else
    they count as fully correlated. Nothing is resampled across the split.

    Args:
        first: One run.
        second: The other; its rows are the same clusters if ``paired``, and are split alike.
        level: One minus the confidence of the interval.
        rng: Source of the split.
        paired: Same questions.

    Returns:
        None with fewer than four clusters in either, if a named phase is missing from a half, or
        if in a measuring half the clusters of neither run vary at the phases named: an interval
        from no variance would claim to be exact because nothing went wrong yet.
    """
    if min(first.clusters, second.clusters) < FEWEST_CLUSTERS:
        return None
    # Split alike also where nothing is paired: runs that answered the same then have the same gap.
    seed = int(rng.integers(2**32))
    side, other = (_split(run.clusters, np.random.default_rng(seed)) for run in (first, second))
    ways = []
    for naming, naming_other in ((side, other), (~side, ~other)):
        way = (_way(first, naming), _way(second, naming_other))
        if way[0] is None or way[1] is None:
            return None
        if not (way[0].parts.any() or way[1].parts.any()):
            return None
        ways.append((way[0], way[1]))
    (one, two), (three, four) = ways
    errors = (
        _error(one.parts, two.parts, paired=paired),
        _error(three.parts, four.parts, paired=paired),
    )
    agree = one.named == three.named and two.named == four.named
    error = math.hypot(*errors) / 2 if agree else sum(errors) / 2
    pp = (one.gap - two.gap + three.gap - four.gap) / 2
    return _estimate(pp, error, level, first, second, lost=2)


@dataclass(frozen=True, slots=True)
class _Way:
    """Phases named on one half, measured on the other."""

    named: tuple[int, int]
    gap: float
    parts: NDArray[np.float64]
    """What each cluster of the measuring half adds, shape (clusters,); 0 for the naming half."""


def _split(clusters: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A random half of the clusters."""
    order: NDArray[np.int64] = rng.permutation(clusters)
    return order < clusters // 2


def _way(run: Tally, naming: NDArray[np.bool_]) -> _Way | None:
    named = Tally(run.n[naming], run.right[naming]).accuracy
    if np.isnan(named).all():
        return None
    best, worst = int(np.nanargmax(named)), int(np.nanargmin(named))
    half = Tally(run.n[~naming], run.right[~naming])
    gap = float(half.accuracy[best] - half.accuracy[worst])
    if math.isnan(gap):
        return None
    influence = half.influence()
    parts = np.zeros(run.clusters)
    parts[~naming] = influence[:, best] - influence[:, worst]
    return _Way((best, worst), gap, parts)


def _error(first: NDArray[np.float64], second: NDArray[np.float64], *, paired: bool) -> float:
    """Standard error of a difference from what clusters add to its two sides.

    Clusters that add nothing (the naming half) do not count for the correction J / (J - 1).
    """
    if paired:
        return math.sqrt(_variance(first - second, (first != 0) | (second != 0)))
    return math.sqrt(_variance(first, first != 0) + _variance(second, second != 0))


def _variance(parts: NDArray[np.float64], counted: NDArray[np.bool_]) -> float:
    size = max(2, int(counted.sum()))
    return float(np.square(parts).sum()) * size / (size - 1)


def _estimate(
    value: float, error: float, level: float, first: Tally, second: Tally, *, lost: int = 1
) -> Estimate:
    """With Student's t at the degrees of freedom of the smaller run."""
    from scipy import special

    free = max(1, min(first.clusters, second.clusters) - lost)
    half = float(special.stdtrit(free, 1.0 - level / 2)) * error
    p = 1.0 if value == 0.0 else 0.0
    if error > 0:
        p = 2.0 * float(special.stdtr(free, -abs(value) / error))
    return Estimate(100 * value, 100 * (value - half), 100 * (value + half), p)
