"""The score statistic of a period, for the outcomes as they are and as they are when permuted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.stats.series import Series, cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

RANK_TOLERANCE = 1e-9
SMALLEST_LOG_P = -600.0
"""Below this a p value is near the smallest double."""
MANY = 20_000
"""Answers from which on single precision holds the contrasts: as good as the permutations' sums."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Score statistics of several candidate periods on one series.

    For a period p let X be the n x p indicators of ``phase mod p``, centred inside each stratum
    (or freed of the nuisance), y the outcomes, U = X'y and V the covariance of U when outcomes are
    permuted inside strata. The statistic is T = U' V^- U, close to chi-square with rank(V) degrees
    of freedom: the generalised Cochran-Mantel-Haenszel statistic. V is the sum over strata of
    (permutation variance of one answer) x X'X and does not change under permutation, so it is
    taken into X once and for all: T = |y' X V^(-1/2)|^2.

    Source: A. Agresti, Categorical Data Analysis, 3rd ed., section 8.4; with nuisance:
    D. Freedman and D. Lane, A nonstochastic interpretation of reported significance levels,
    J. Business & Economic Statistics 1 (1983), studentised by the permuted residual variance.
    """

    periods: tuple[int, ...]
    ranks: NDArray[np.int64]
    """Degrees of freedom of each period, shape (periods,)."""
    matrix: NDArray[np.float64] | NDArray[np.float32]
    """X V^(-1/2) of all periods side by side, then the nuisance; shape (n, sum of ranks + k)."""
    free: int = 0
    """Degrees of freedom of the residual variance; 0 without nuisance (V is then known)."""
    total: float = 0.0
    """Sum of squared outcomes, the same under every permutation."""

    def observed(self, outcome: NDArray[np.float64]) -> NDArray[np.float64]:
        """The outcomes as they are (n,) times `matrix`, shape (1, -)."""
        row: NDArray[Any] = outcome.astype(self.matrix.dtype)[None, :]
        projected = row @ self.matrix
        return np.asarray(projected, dtype=np.float64)

    def statistics(self, projected: NDArray[np.float64]) -> NDArray[np.float64]:
        """T of every period from ``outcomes @ matrix``, shapes (draws, periods) and (draws, -)."""
        squares = np.square(projected)
        ends = np.cumsum(self.ranks)
        columns = int(ends[-1])
        sums: NDArray[np.float64] = np.add.reduceat(
            squares[:, :columns], np.concatenate([[0], ends[:-1]]), axis=1
        )
        if self.free:
            left = np.maximum(self.total - squares[:, columns:].sum(axis=1), 1e-12)
            sums = sums * (self.free / left)[:, None]
        return sums

    def log_p(self, projected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Natural logarithm of the chi-square p values, shape (draws, periods)."""
        return log_chi2_sf(self.statistics(projected), self.ranks)

    def reach(self, projected: NDArray[np.float64], log_p: float) -> NDArray[np.bool_]:
        """In which draws the smallest chi-square p value is at most exp(``log_p``), shape (draws,).

        The statistics are compared with their critical values, which costs nothing, instead of
        being turned into p values; only where those underflow is that not possible.
        """
        from scipy import special

        if log_p < SMALLEST_LOG_P:
            return np.asarray((self.log_p(projected) <= log_p).any(axis=1), dtype=np.bool_)
        critical = special.chdtri(self.ranks, math.exp(log_p))
        return np.asarray((self.statistics(projected) >= critical).any(axis=1), dtype=np.bool_)


def scores(series: Series, periods: Sequence[int], *, given: int | None = None) -> Scores:
    """Prepare the statistics of ``periods``; those that the data cannot tell at all are left out.

    Args:
        series: The rows.
        periods: Candidate periods.
        given: A period whose effect is held fixed: the statistics are then of what each period
            adds to it.
    """
    stratum = series.stratum if given is None else coarse_cells(series, given)
    nuisance = series.nuisance
    if given is not None and nuisance.shape[1]:
        nuisance = _joined(nuisance, indicators(series.phase, given))
    free = nuisance.shape[1]
    spread = np.ones(len(series)) if free else series.weight * variance_of_one(series, stratum)
    # One period after the other into one array: with many answers this is most of the memory.
    kind = np.float32 if len(series) >= MANY and not free else np.float64
    matrix = np.empty((len(series), sum(periods) + free), dtype=kind)
    ranks, end = [], 0
    for period in periods:
        marks = indicators(series.phase, period)
        if free:
            marks -= nuisance @ (nuisance.T @ marks)
        else:
            marks = centred(marks, series.weight, stratum)
        part = _whitened(marks, spread)
        matrix[:, end : end + part.shape[1]] = part
        ranks.append(part.shape[1])
        end += part.shape[1]
    matrix[:, end : end + free] = nuisance
    return Scores(
        periods=tuple(p for p, rank in zip(periods, ranks, strict=True) if rank),
        ranks=np.array([rank for rank in ranks if rank], dtype=np.int64),
        matrix=matrix[:, : end + free],
        free=max(1, len(series) - free) if free else 0,
        total=float(np.square(series.outcome).sum()),
    )


def indicators(phase: NDArray[np.int64], period: int) -> NDArray[np.float64]:
    """One column a residue, shape (n, period)."""
    hit: NDArray[np.bool_] = (phase % period)[:, None] == np.arange(period)[None, :]
    return hit.astype(np.float64)


def centred(
    columns: NDArray[np.float64], weight: NDArray[np.float64], stratum: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Columns (n, k) minus their weighted mean inside each stratum (labels from 0 up)."""
    if not len(stratum):
        return columns
    order = np.argsort(stratum, kind="stable")
    new = np.diff(stratum[order], prepend=-1) != 0
    starts = np.flatnonzero(new)
    total = np.add.reduceat((columns * weight[:, None])[order], starts, axis=0)
    size = np.add.reduceat(weight[order], starts)
    label = np.empty(len(stratum), dtype=np.int64)
    label[order] = np.cumsum(new) - 1
    means: NDArray[np.float64] = (total / np.maximum(size, 1.0)[:, None])[label]
    return columns - means


def variance_of_one(series: Series, stratum: NDArray[np.int64]) -> NDArray[np.float64]:
    """Permutation variance of a single answer in each row's stratum, shape (n,).

    All ones when there is nuisance: the variance is then taken from the permuted residuals.
    """
    if series.nuisance.shape[1]:
        return np.ones(len(series))
    size = np.bincount(stratum, weights=series.weight)
    right = np.bincount(stratum, weights=series.outcome)
    # A row's answers are 0 or 1 except for ranks (weight 1), whose squares are not their sums.
    squares = right if series.counts else np.bincount(stratum, weights=series.outcome**2)
    spread = (squares - right**2 / np.maximum(size, 1.0)) / np.maximum(size - 1.0, 1.0)
    of_rows: NDArray[np.float64] = np.maximum(spread, 0.0)[stratum]
    return of_rows


def coarse_cells(series: Series, period: int, least: int = 4) -> NDArray[np.int64]:
    """Cells of ``phase mod period`` inside strata, neighbouring strata merged until they suffice.

    Permuting inside these cells keeps whatever has this period. A block of 24 rows leaves next to
    nothing to permute once it is cut into 16 residues; merging blocks then lets slow trends in,
    which is harmless here: only which period to name depends on it, not whether there is one.
    """
    residue = series.phase % period
    if series.counts or series.nuisance.shape[1]:
        return cells(series.stratum, residue)
    strata = int(series.stratum.max()) + 1
    merge = max(1, round(least * period * strata / len(series)))
    return cells(series.stratum // merge, residue)


def log_chi2_sf(x: NDArray[np.float64], df: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logarithm of the chi-square upper tail, also where the tail itself underflows.

    Far out, the first terms of the asymptotic series of the incomplete gamma function are used
    (NIST DLMF 8.11.2).
    """
    from scipy import special

    a = np.broadcast_to(df / 2.0, x.shape)
    half = x / 2.0
    tail = special.gammaincc(a, half)
    far = tail < 1e-280
    logs = np.log(np.where(far, 1.0, tail))
    if far.any():
        h, b = half[far], a[far]
        series = 1 + (b - 1) / h * (1 + (b - 2) / h * (1 + (b - 3) / h))
        logs[far] = (b - 1) * np.log(h) - h - special.gammaln(b) + np.log(np.maximum(series, 1e-3))
    return logs


def _whitened(x: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """X V^(-1/2) for one period, shape (n, rank); V = X' diag(spread) X."""
    values, vectors = np.linalg.eigh((x * spread[:, None]).T @ x)
    keep = values > RANK_TOLERANCE * max(1.0, float(values.max(initial=0.0)))
    half: NDArray[np.float64] = vectors[:, keep] / np.sqrt(values[keep])
    return x @ half


def _joined(basis: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """An orthonormal basis of ``basis`` and ``columns`` together."""
    left = columns - basis @ (basis.T @ columns)
    u, s, _ = np.linalg.svd(left, full_matrices=False)
    return np.concatenate([basis, u[:, s > 1e-8]], axis=1)
