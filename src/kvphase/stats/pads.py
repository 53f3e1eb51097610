"""Short sweeps of a user's own prompts: does what comes back have a period in the pad?

The unit is the pad. Everything that was asked at one pad (several tasks, several fillers) is
permuted together, so whatever the tasks or the fillers have in common at a pad, a filler word that
puts all of them off for example, is no evidence for a period. Repeats and fillers therefore never
count as replicates; only further pads do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.permute import TIE, p_value
from kvphase.stats.score import indicators

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DOWN = 0.01
"""A multiple is named only if what it adds to its divisor has a p value of at most this."""
REPLICATION = 0.05
"""Largest p value at which one half of the cycles (or each filler) repeats the others."""
LARGEST_PERIOD = 8
FEWEST_FAMILIES = 3
"""Fillers without which their agreement cannot be tested."""
_TREND = 3
_NOTHING = 1e-16
"""Share of a task's sum of squares up to which it does not vary: rounding."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The test of one sweep."""

    p_value: float | None
    """None where nothing varies or the pads hold no two cycles of any period."""
    period: int | None
    """The best period by the period rule; None where nothing could be tested."""
    replicates: bool
    """Even and odd cycles show the same pattern."""


def periods_of(pads: int) -> tuple[int, ...]:
    """Candidate periods: those of which so many consecutive pads hold two full cycles."""
    return tuple(p for p in range(2, LARGEST_PERIOD + 1) if 2 * p <= pads)


def swept(tasks: Sequence[NDArray[np.float64]], rng: np.random.Generator) -> Swept:
    """Test all candidate periods of a sweep over consecutive pads at once.

    Linear and quadratic terms of the pad are taken out of every column. The statistic is the
    smallest F p value over the periods of the share of variation that residues explain, every task
    weighing the same; pads are permuted, all tasks together, and the trend is taken out again.

    Permuted are once the outcomes without their trend (Freedman and Lane's way, as
    `kvphase.stats.score`) and once the outcomes as they are; the larger p value counts. The second
    is exact where pads are exchangeable, also for a single odd answer at the edge, whose trend
    would make the first far too small; the first keeps its level where there is a drift.

    Args:
        tasks: One array a task, shape (pads, columns): a score or right and wrong in one column,
            or one column a group of answers.
        rng: Of the permutations.
    """
    y = joined(tasks)
    n = y.shape[0]
    candidates = periods_of(n)
    if not candidates or not y.shape[1]:
        return Swept(None, None, replicates=False)
    trend = trend_of(n)
    bases = [_basis(indicators(np.arange(n), p), trend) for p in candidates]
    cells = [np.arange(n)]
    best, p = _smallest(y, bases, trend, cells, rng)
    p = max(p, _smallest(joined(tasks, keep_trend=True), bases, trend, cells, rng)[1])
    period = _named(y, candidates, best, trend, rng)
    return Swept(p, period, replicates=_repeats(y, period, rng) <= REPLICATION)


def single(tasks: Sequence[NDArray[np.float64]], period: int, rng: np.random.Generator) -> float:
    """P value of one period alone, as for a control; 1 where nothing varies."""
    y = joined(tasks)
    n = y.shape[0]
    if not y.shape[1] or 2 * period > n:
        return 1.0
    trend = trend_of(n)
    basis = _basis(indicators(np.arange(n), period), trend)
    return _smallest(y, [basis], trend, [np.arange(n)], rng)[1]


def joined(
    tasks: Sequence[NDArray[np.float64]], *, keep_trend: bool = False
) -> NDArray[np.float64]:
    """All columns without their trend, each task scaled to the same variation; (pads, columns).

    Tasks that do not vary besides a trend are left out. With ``keep_trend`` only the mean is
    taken out, the scale being that of what is left without the trend.
    """
    parts = []
    for outcome in tasks:
        left = detrended(outcome)
        size = float(np.square(left).sum())
        if size > _NOTHING * max(1.0, float(np.square(outcome).sum())):
            centred = outcome - outcome.mean(axis=0) if keep_trend else left
            parts.append(centred / np.sqrt(size))
    rows = len(tasks[0]) if tasks else 0
    return np.concatenate(parts, axis=1) if parts else np.zeros((rows, 0))


def detrended(outcome: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without mean, linear and quadratic terms of the pad; shape (pads, columns)."""
    trend = trend_of(len(outcome))
    return outcome - trend @ (trend.T @ outcome)


def trend_of(n: int) -> NDArray[np.float64]:
    """Orthonormal 1, pad, pad squared over ``n`` consecutive pads, shape (n, at most 3)."""
    x = np.linspace(-1.0, 1.0, n)
    powers = np.stack([np.ones(n), x, x * x], axis=1)[:, : min(_TREND, n)]
    return np.linalg.qr(powers)[0]


def families_agree(families: Sequence[NDArray[np.float64]], period: int) -> float | None:
    """P value of the hypothesis that the fillers do not share one pattern over the residues.

    Every filler's profile is projected on the mean profile of the others; Student's t over
    fillers, one-sided. What a single filler does by itself has nothing to be projected on.

    Args:
        families: One array a filler, shape (pads, columns), columns in the same order.
        period: Whose residues.

    Returns:
        None with fewer than three fillers.
    """
    from scipy import special

    count = len(families)
    if count < FEWEST_FAMILIES:
        return None
    n = len(families[0])
    basis = _basis(indicators(np.arange(n), period), trend_of(n))
    profiles = np.stack([(basis.T @ detrended(one)).reshape(-1) for one in families])
    others = (profiles.sum(axis=0) - profiles) / (count - 1)
    along = (profiles * others).sum(axis=1)
    spread = float(along.std(ddof=1)) / np.sqrt(count)
    mean = float(along.mean())
    if spread <= _NOTHING:
        return 0.0 if mean > 0 else 1.0
    return float(special.stdtr(count - 1, -mean / spread))


def _basis(marks: NDArray[np.float64], trend: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal columns of the residues without the trend, shape (n, rank)."""
    left = marks - trend @ (trend.T @ marks)
    u, s, _ = np.linalg.svd(left, full_matrices=False)
    return u[:, s > 1e-8]


def _smallest(
    y: NDArray[np.float64],
    bases: Sequence[NDArray[np.float64]],
    trend: NDArray[np.float64],
    cells: Sequence[NDArray[np.int64]],
    rng: np.random.Generator,
) -> tuple[int, float]:
    """Index of the best basis, and the permutation p value of its statistic being that small.

    Rows are permuted inside ``cells``, all columns together.
    """
    n, k = len(y), trend.shape[1]
    kept = [i for i, basis in enumerate(bases) if 0 < basis.shape[1] < n - k]
    if not kept:
        return 0, 1.0

    def statistics(moved: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.square(moved).sum(axis=(1, 2)) - _explained(moved, trend)
        parts = [(_explained(moved, bases[i]), bases[i].shape[1]) for i in kept]
        return np.stack([_log_p(ss, total, rank, n - k - rank) for ss, rank in parts], axis=1)

    observed = statistics(y[None])[0]
    limit = float(observed.min()) + TIE * (1.0 + abs(float(observed.min())))

    def as_extreme(size: int) -> NDArray[np.bool_]:
        order = np.tile(np.arange(n), (size, 1))
        for cell in cells:
            keys = rng.random((size, len(cell)))
            order[:, cell] = cell[keys.argsort(axis=1)]
        hits: NDArray[np.bool_] = statistics(y[order]).min(axis=1) <= limit
        return hits

    return kept[int(observed.argmin())], p_value(as_extreme)


def _explained(moved: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of squares along ``basis`` of each draw, shape (draws,)."""
    along: NDArray[np.float64] = np.einsum("nr,dnc->drc", basis, moved)
    squares: NDArray[np.float64] = np.square(along).sum(axis=(1, 2))
    return squares


def _log_p(
    explained: NDArray[np.float64], total: NDArray[np.float64], rank: int, left: int
) -> NDArray[np.float64]:
    """Logarithm of the F p value; shape (draws,)."""
    from scipy import special

    rest = np.clip(1.0 - explained / np.maximum(total, 1e-30), 1e-12, 1.0)
    logs: NDArray[np.float64] = np.log(special.betainc(left / 2.0, rank / 2.0, rest))
    return logs


def _named(
    y: NDArray[np.float64],
    candidates: Sequence[int],
    best: int,
    trend: NDArray[np.float64],
    rng: np.random.Generator,
) -> int:
    """The best candidate, or a divisor of it to which it adds nothing significant."""
    period, n = candidates[best], len(y)
    for divisor in (d for d in candidates if d < period and period % d == 0):
        coarse = indicators(np.arange(n), divisor)
        given = np.concatenate([trend, _basis(coarse, trend)], axis=1)
        basis = _basis(indicators(np.arange(n), period), given)
        rest = y - given @ (given.T @ y)
        cells = [np.flatnonzero(mark) for mark in coarse.T]
        if _smallest(rest, [basis], given, cells, rng)[1] > DOWN:
            return divisor
    return period


def _repeats(y: NDArray[np.float64], period: int, rng: np.random.Generator) -> float:
    """P value of the hypothesis that the pattern lives in at most one half of the cycles.

    As `kvphase.stats.period.replication_p`, rows of all columns permuted together.
    """
    n = len(y)
    marks = indicators(np.arange(n), period)
    half = (np.arange(n) // period) % 2
    sides = [np.flatnonzero(half == side) for side in (0, 1)]
    if not all(map(len, sides)):
        return 1.0
    return max(
        _follows(y[mine], marks[mine], _profile(y[other], marks[other]), rng)
        for mine, other in (sides, sides[::-1])
    )


def _profile(y: NDArray[np.float64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each residue, shape (period, columns), about their mean."""
    size = np.maximum(marks.sum(axis=0), 1.0)
    means = (marks.T @ y) / size[:, None]
    centred: NDArray[np.float64] = means - means.mean(axis=0)
    return centred


def _follows(
    y: NDArray[np.float64],
    marks: NDArray[np.float64],
    model: NDArray[np.float64],
    rng: np.random.Generator,
) -> float:
    """One-sided p value that these rows follow the model's profile."""
    expected = marks @ model
    observed = float((expected * y).sum())
    slack = TIE * float(np.abs(expected * y).sum())

    def as_extreme(size: int) -> NDArray[np.bool_]:
        order = rng.random((size, len(y))).argsort(axis=1)
        hits: NDArray[np.bool_] = (y[order] * expected).sum(axis=(1, 2)) >= observed - slack
        return hits

    return p_value(as_extreme, most=1_999, enough=200)
