"""What a confirm run of this size would have found: the gap of one weak residue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.power import POWER

if TYPE_CHECKING:
    from numpy.typing import NDArray


def passes_guard(counts: NDArray[np.float64], guard: float) -> bool:
    """Whether a single weak residue, however weak, would pass the guard.

    If nothing else differs, all deals that give the weak prefills one and the same residue are as
    extreme as the data: one in the product over contents of (prefills choose weak ones), times the
    residues that are dealt as often everywhere.

    Args:
        counts: How often each residue is dealt in each content, shape (contents, period).
        guard: Permutation p value that must be reached.
    """
    from scipy import special

    ways = special.binom(counts.sum(axis=1)[:, None], counts).prod(axis=0)
    alike = (counts[:, :, None] == counts[:, None, :]).all(axis=0).sum(axis=0)
    return bool((alike / ways <= guard).all())


def gap_seen(
    strength: NDArray[np.float64], rank: int, alpha: float, mean: float, free: int | None = None
) -> float | None:
    """Gap of one weak residue, percentage points, found with 95% power wherever it is.

    The statistic is taken as noncentral chi-square, as noncentral F with ``free`` degrees of
    freedom for the error. Near the ceiling a weak residue's answers vary more than those that
    were seen: with v the variance of an answer at the accuracy named, the contrast of one residue
    of p with the others varies (v(mean - gap) + v(mean) / (p-1)) / (v(mean) p / (p-1)) times as
    much. Labels of items dealt anew moreover turn the gap itself into noise, gap^2 (p-1) / p^2.

    Args:
        strength: Noncentrality that a gap of 1 at each residue gives, shape (p,).
        rank: Degrees of freedom of the statistic.
        alpha: Level of the test.
        mean: Accuracy of the other residues.
        free: Degrees of freedom of the error; None where labels of items are dealt anew.

    Returns:
        None where some residue's weakness could not be seen at all.
    """
    from scipy import special

    if not rank or float(strength.min()) <= 0.0:
        return None
    if free is None:
        critical = float(special.chdtri(rank, alpha))
        needed = float(special.chndtrinc(critical, rank, 1.0 - POWER))
    else:
        critical = float(special.fdtri(rank, free, 1.0 - alpha))
        needed = float(special.ncfdtrinc(rank, free, 1.0 - POWER, critical))
    gap, p = np.arange(1, 1001) / 1000, len(strength)
    weak = np.maximum(mean - gap, 0.0)
    usual = mean * (1.0 - mean)
    noise = np.maximum(1.0, (weak * (1.0 - weak) * (p - 1) / usual + 1.0) / p)
    if free is None:
        noise += np.square(gap) * (p - 1) / p**2 / usual
    seen = np.square(gap) * float(strength.min()) >= needed * noise
    return 100.0 * float(gap[int(seen.argmax())]) if seen.any() else 100.0
