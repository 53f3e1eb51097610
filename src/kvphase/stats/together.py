"""Facts that one request answers: do they follow position if each request is taken as a whole?

Answers of one request stand or fall together, for whatever reason: they are no replicates. The
unit is the request, so all facts of a prompt are permuted over its shifts together, and prompts
independently of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.pads import trend_of
from kvphase.stats.permute import TIE, p_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Shifted:
    """One prompt at consecutive shifts."""

    correct: NDArray[np.float64]
    """1 right, 0 wrong, shape (shifts, facts)."""
    start: NDArray[np.int64]
    """Position of each fact at the first shift, shape (facts,)."""


def p_together(
    prompts: Sequence[Shifted], periods: Sequence[int], rng: np.random.Generator
) -> float:
    """P value of the most telling period, whole requests permuted.

    Mean, linear and quadratic terms of the shift are taken out of every fact, before permuting and
    again after it (Freedman and Lane). The statistic is the smallest chi-square p value over the
    periods of the sums at each residue of the facts' positions, all facts together.

    Args:
        prompts: All with the same number of shifts.
        periods: Candidates of which the shifts hold two cycles.
        rng: Of the permutations.

    Returns:
        1 where nothing varies.
    """
    from scipy import special

    if not prompts or not periods:
        return 1.0
    n = len(prompts[0].correct)
    trend = trend_of(n)
    free = np.eye(n) - trend @ trend.T
    left = [free @ one.correct for one in prompts]
    variance = float(sum(np.square(y).sum() for y in left))
    columns = sum(y.shape[1] for y in left)
    if variance <= TIE:
        return 1.0
    variance /= columns * (n - trend.shape[1])
    marks = [[_marks(one, n, free, p) for p in periods] for one in prompts]

    def statistics(orders: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        found = []
        for i, p in enumerate(periods):
            sums = sum(
                np.einsum("dnc,ncr->dr", y[order], mark[i])
                for y, mark, order in zip(left, marks, orders, strict=True)
            )
            chi2 = np.square(sums).sum(axis=1) / (variance * columns * n / p)
            found.append(np.log(np.maximum(special.chdtrc(p - 1, chi2), 1e-300)))
        smallest: NDArray[np.float64] = np.min(found, axis=0)
        return smallest

    as_is = np.arange(n)[None]
    limit = float(statistics([as_is] * len(prompts))[0])
    limit += TIE * (1.0 + abs(limit))

    def as_extreme(size: int) -> NDArray[np.bool_]:
        orders = [rng.random((size, n)).argsort(axis=1) for _ in prompts]
        hits: NDArray[np.bool_] = statistics(orders) <= limit
        return hits

    return p_value(as_extreme)


def _marks(one: Shifted, n: int, free: NDArray[np.float64], period: int) -> NDArray[np.float64]:
    """Which residue each fact has at each shift, the trend taken out; (shifts, facts, period)."""
    at = (one.start[None, :] + np.arange(n)[:, None]) % period
    hot = (at[..., None] == np.arange(period)).astype(np.float64)
    marks: NDArray[np.float64] = np.einsum("mn,ncr->mcr", free, hot)
    return marks


__all__ = ["Shifted", "p_together"]
