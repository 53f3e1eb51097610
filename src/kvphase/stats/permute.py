"""Random permutations inside strata, and p values from as few of them as it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.stats.series import Series

MOST_DRAWS = 9_999
EXCEEDANCES = 30
FIRST_CHUNK = 64
LARGEST_CHUNK = 512

LARGEST_DRAW = 1 << 23
"""Values that are shuffled at once: 32 MB, and as much again for their sums."""

TIE = 1e-5
"""Relative difference up to which statistics count as equal: above the rounding of single
precision, so that exact ties, frequent in small data, are never lost to it."""

Draw = Callable[[int], "NDArray[np.float64]"]


def projector(
    series: Series,
    stratum: NDArray[np.int64],
    matrix: NDArray[np.float64] | NDArray[np.float32],
    rng: np.random.Generator,
) -> Draw:
    """Permute outcomes inside strata and multiply them by a fixed matrix.

    Args:
        series: The rows; ``counts`` says what permuting means.
        stratum: Labels of what is exchangeable, shape (n,).
        matrix: What the permuted outcomes are multiplied by, shape (n, k).
        rng: Source of the permutations.

    Returns:
        A function of the number of draws; its result has shape (draws, k).
    """
    if series.counts:
        return _counts(series, stratum, matrix, rng)
    return _rows(series.outcome, stratum, matrix, rng)


def p_value(
    as_extreme: Callable[[int], NDArray[np.bool_]],
    *,
    most: int = MOST_DRAWS,
    enough: int = EXCEEDANCES,
) -> float:
    """Sequential Monte Carlo p value.

    Draws until ``enough`` permutations were at least as extreme as the data; a p value of one half
    then costs some 60 draws and a small one the full ``most``. Valid at every level: under the
    null P(p <= a) <= a.

    Args:
        as_extreme: Draws that many permutations and says which are at least as extreme.
        most: Draws to stop at in any case.
        enough: Exceedances to stop at.

    Source: J. Besag and P. Clifford, Sequential Monte Carlo p-values, Biometrika 78 (1991).
    """
    drawn, extreme, chunk = 0, 0, FIRST_CHUNK
    while drawn < most:
        hits = as_extreme(min(chunk, most - drawn))
        if extreme + int(hits.sum()) >= enough:
            # Stop at the very draw, or the estimate would depend on the size of the chunks.
            last = int(np.flatnonzero(hits)[enough - extreme - 1])
            return enough / (drawn + last + 1)
        extreme += int(hits.sum())
        drawn += len(hits)
        chunk = min(2 * chunk, LARGEST_CHUNK)
    return (extreme + 1) / (most + 1)


def _rows(
    outcome: NDArray[np.float64],
    stratum: NDArray[np.int64],
    matrix: NDArray[np.float64] | NDArray[np.float32],
    rng: np.random.Generator,
) -> Draw:
    """Permute rows by sorting random keys, all strata of a draw in one call.

    The matrix is laid out in the order of the slots, with zeros for empty ones, so that shuffled
    values need not be put back in row order.
    """
    movable = _movable(outcome, stratum)
    slots, real = _slots(np.flatnonzero(movable), stratum)
    values = np.where(real, outcome[slots], 0.0)
    still = np.flatnonzero(~movable)
    fixed = outcome[still] @ matrix[still]
    binary = bool(np.isin(outcome, (0.0, 1.0)).all())
    shuffle = _sorted_bits if binary else _sorted_values
    # Sums of some thousand zeros and ones are good to about 1e-6 in single precision.
    laid_out = matrix.astype(np.float32 if binary else matrix.dtype, copy=False)[slots.reshape(-1)]
    laid_out[~real.reshape(-1)] = 0.0
    # An even number, so that the draws do not depend on it.
    most = max(2, LARGEST_DRAW // max(1, values.size) // 2 * 2)

    def some(size: int) -> NDArray[np.float64]:
        shuffled = shuffle(values, real, size, rng).reshape(size, -1)
        return np.asarray(shuffled.astype(laid_out.dtype) @ laid_out + fixed, dtype=np.float64)

    def draw(size: int) -> NDArray[np.float64]:
        return np.concatenate([some(min(most, size - at)) for at in range(0, size, most)])

    return draw


def _sorted_bits(
    values: NDArray[np.float64], real: NDArray[np.bool_], size: int, rng: np.random.Generator
) -> NDArray[np.uint32]:
    """Shuffled 0/1 values, shape (size, strata, width): each rides as lowest bit of its key."""
    count = size * values.size
    # Raw words, each of them two keys: several times as fast as bounded integers.
    words = rng.bit_generator.random_raw(-(-count // 2)).view(np.uint32)
    keys = words[:count].reshape(size, *values.shape)
    keys &= np.where(real, np.uint32(0xFFFFFFFC), np.uint32(0))
    # Empty slots hold the largest key and go last.
    keys |= np.where(real, values.astype(np.uint32), np.uint32(0xFFFFFFFF))
    keys.sort(axis=-1)
    keys &= np.uint32(1)
    return keys


def _sorted_values(
    values: NDArray[np.float64], real: NDArray[np.bool_], size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Shuffled values of any kind, shape (size, strata, width)."""
    keys = rng.random(size=(size, *values.shape))
    keys[:, ~real] = 2.0
    spread = np.broadcast_to(values, keys.shape)
    shuffled: NDArray[np.float64] = np.take_along_axis(spread, keys.argsort(axis=-1), axis=-1)
    return shuffled


def _movable(outcome: NDArray[np.float64], stratum: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows are in strata whose outcomes differ, shape (n,): permuting others is idle."""
    k = int(stratum.max(initial=-1)) + 1
    low, high = np.full(k, np.inf), np.full(k, -np.inf)
    np.minimum.at(low, stratum, outcome)
    np.maximum.at(high, stratum, outcome)
    movable: NDArray[np.bool_] = (high > low)[stratum]
    return movable


def _slots(
    rows: NDArray[np.int64], stratum: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of each stratum side by side, shape (strata, width), and which slots hold a row.

    An empty slot names row 0.
    """
    _, label = np.unique(stratum[rows], return_inverse=True)
    label = label.reshape(-1)
    order = np.argsort(label, kind="stable")
    size = np.bincount(label)
    offset = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
    shape = (len(size), int(size.max(initial=0)))
    slots, real = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    slots[label[order], offset] = rows[order]
    real[label[order], offset] = True
    return slots, real


def _counts(
    series: Series,
    stratum: NDArray[np.int64],
    matrix: NDArray[np.float64] | NDArray[np.float32],
    rng: np.random.Generator,
) -> Draw:
    """Deal the right answers of each stratum out anew over all its answers."""
    groups = [np.flatnonzero(stratum == label) for label in np.unique(stratum)]

    def draw(size: int) -> NDArray[np.float64]:
        dealt = np.empty((size, len(series)))
        for rows in groups:
            n = series.weight[rows].astype(np.int64)
            right = int(series.outcome[rows].sum())
            dealt[:, rows] = rng.multivariate_hypergeometric(
                n, right, size=size, method="marginals"
            )
        projected: NDArray[np.float64] = dealt @ matrix
        return projected

    return draw
