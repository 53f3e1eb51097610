"""Permutation tests that deal labels out anew among whole units: items, or prefills."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.permute import p_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TOLERANCE = 1e-8
"""Eigenvalue, relative to the largest, below which a direction cannot be told at all."""
TIE = 1e-9
"""Relative difference up to which statistics count as equal; the sums are in double precision."""


@dataclass(frozen=True, slots=True)
class Deal:
    """Units with labels, and what each of them would add to a score under every label.

    The score of a deal is U = sum over units of ``parts[unit, its label]``. Under the null the
    labels of a stratum's units might as well have been dealt out in any other order.
    """

    stratum: NDArray[np.int64]
    """Labels 0..s-1 of what is exchangeable, shape (n,)."""
    label: NDArray[np.int64]
    """Residues 0..p-1, shape (n,)."""
    parts: NDArray[np.float64]
    """Shape (n, p, k); centred by ``dealt``, so that the mean of U over all deals is zero."""
    covariance: NDArray[np.float64]
    """Covariance of U over all deals, shape (k, k)."""


@dataclass(frozen=True, slots=True)
class Test:
    """A score test of linear combinations of U."""

    rank: int
    """Degrees of freedom; 0 where the data cannot tell them at all."""
    inverse: NDArray[np.float64]
    """Generalised inverse of their covariance."""
    table: NDArray[np.float64]
    """Whitened parts, shape (n, p, rank): the statistic is their sum's square."""


def dealt(stratum: NDArray[np.int64], label: NDArray[np.int64], parts: NDArray[np.float64]) -> Deal:
    """Centre the parts over units and over labels of their stratum, and find U's covariance.

    With a' the doubly centred parts of a stratum of m units, the covariance of U is the sum over
    strata of sum_(unit, label) a' a'^T / (m - 1), each label as often as it is there. It is the
    same for every deal, and it holds however the answers of one unit hang together.

    Source: W. Hoeffding, A combinatorial central limit theorem, Annals of Mathematical Statistics
    22 (1951).
    """
    n, period, size = parts.shape
    counts = label_counts(stratum, label, period)
    total = counts.sum(axis=1)
    share = counts / np.maximum(total, 1.0)[:, None]
    of_unit = np.einsum("up,upk->uk", share[stratum], parts)
    of_label = np.zeros((len(counts), period, size))
    np.add.at(of_label, stratum, parts)
    of_label /= np.maximum(total, 1.0)[:, None, None]
    overall = np.einsum("sp,spk->sk", share, of_label)
    centred = parts - of_unit[:, None, :] - of_label[stratum] + overall[stratum][:, None, :]
    weight = counts[stratum] / np.maximum(total - 1.0, 1.0)[stratum][:, None]
    flat = centred.reshape(n * period, size)
    return Deal(stratum, label, centred, (flat * weight.reshape(-1, 1)).T @ flat)


def label_counts(
    stratum: NDArray[np.int64], label: NDArray[np.int64], period: int
) -> NDArray[np.float64]:
    """How often each label is dealt in each stratum, shape (strata, period)."""
    counts = np.zeros((int(stratum.max(initial=-1)) + 1, period))
    np.add.at(counts, (stratum, label), 1.0)
    return counts


def whitened(deal: Deal, combined: NDArray[np.float64]) -> Test:
    """Prepare the test of the linear combinations ``combined @ U``, shape (q, k)."""
    covariance = combined @ deal.covariance @ combined.T
    largest = float(np.diag(deal.covariance).max(initial=0.0))
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    keep = values > TOLERANCE * max(largest, 1e-9)
    half = vectors[:, keep] / np.sqrt(values[keep])
    return Test(int(keep.sum()), half @ half.T, deal.parts @ (combined.T @ half))


def permutation_p(deal: Deal, test: Test, rng: np.random.Generator) -> float | None:
    """P value of the test over random deals; None where it has nothing to tell."""
    if not test.rank:
        return None
    own = np.arange(len(deal.label)), deal.label
    seen = float(np.square(test.table[own].sum(axis=0)).sum())
    draw = _drawn(deal, test, rng)
    return p_value(lambda size: draw(size) >= seen * (1.0 - TIE))


def _drawn(
    deal: Deal, test: Test, rng: np.random.Generator
) -> Callable[[int], NDArray[np.float64]]:
    """Statistics of that many random deals.

    A key holds a unit's stratum in its highest bits, its label in the lowest and random bits in
    between: sorting the keys shuffles the labels of every stratum of a deal at once. A deal is one
    row of a sparse 0/1 matrix over (unit, label), so no gathered copy of the table is made.
    """
    from scipy import sparse

    order = np.argsort(deal.stratum, kind="stable")
    n, period, rank = test.table.shape
    table = test.table[order].reshape(n * period, rank)
    first = np.arange(n) * period
    low = (period - 1).bit_length()
    high = 64 - int(deal.stratum.max()).bit_length()
    fixed = deal.label[order].astype(np.uint64)
    if high < 64:
        fixed |= deal.stratum[order].astype(np.uint64) << np.uint64(high)
    random_bits = np.uint64((1 << high) - (1 << low))
    label_bits = np.uint64((1 << low) - 1)

    def draw(size: int) -> NDArray[np.float64]:
        keys = rng.bit_generator.random_raw(size * n).reshape(size, n)
        keys &= random_bits
        keys |= fixed
        keys.sort(axis=1)
        columns = (keys & label_bits).astype(np.int64) + first
        ends = np.arange(0, size * n + 1, n)
        deals = sparse.csr_array((np.ones(size * n), columns.reshape(-1), ends), (size, n * period))
        statistics: NDArray[np.float64] = np.square(deals @ table).sum(axis=1)
        return statistics

    return draw


def log_deals(counts: NDArray[np.float64], *, alike: bool = False) -> float:
    """Natural logarithm of the number of distinct deals, given ``label_counts``.

    Args:
        counts: Shape (strata, period).
        alike: The statistic does not change when labels swap their names: labels that are dealt
            equally often everywhere then make deals that cannot be told apart.
    """
    from scipy import special

    log = float(special.gammaln(counts.sum(axis=1) + 1).sum() - special.gammaln(counts + 1).sum())
    if alike:
        present = counts[:, counts.sum(axis=0) > 0]
        _, times = np.unique(present, axis=1, return_counts=True)
        log -= sum(math.lgamma(t + 1) for t in times)
    return log
