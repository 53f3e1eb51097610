"""Where the facts of a file stand: the histogram of residues, and whether it is locked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

Spread = Literal["locked", "uneven", "few", "spread"]
MODULI = (2, 4, 8)
SHOWN = (4, 8)
"""Moduli that are always shown."""
LOCKED_SHARE, LOCKED_P = 0.5, 0.01
"""Share of the facts at one residue from which on a file is called locked, if chance would do that
in at most this share of files; of two residues one must hold nine tenths."""
TWO_SHARE = 0.9
UNEVEN_P = 0.001
EACH = 5
"""Facts that each of eight residues should hold before positions are trusted at all."""


@dataclass(frozen=True, slots=True)
class Residues:
    """Facts of a file by the residue of their position."""

    counts: dict[int, tuple[int, ...]]
    """For each modulus the facts at each residue, shape (modulus,)."""
    n: int
    spread: Spread
    """``locked``: most stand at one residue. ``uneven``: residues differ more than chance lets
    them. ``few``: too few to say. ``spread``: their positions may be trusted."""
    at: tuple[int, int, int] | None = None
    """Where locked: modulus, residue, facts there."""

    def as_json(self) -> dict[str, Any]:
        """For the manifest and the document."""
        return {
            "residues": {str(m): list(counts) for m, counts in self.counts.items()},
            "facts": self.n,
            "spread": self.spread,
            "at": None if self.at is None else list(self.at),
        }


def residues(positions: Sequence[int], moduli: Sequence[int] = ()) -> Residues:
    """Count positions by residue and say whether they are locked.

    A file is locked modulo m where one residue holds half of the facts or more (nine tenths of two
    residues) and a file of random positions would do so with p at most 0.01, the choice of the
    residue included (exact binomial tail times m). Needles put back to the start of a sentence and
    prompts from one template are.

    Args:
        positions: Token index of each fact in its own prompt.
        moduli: Further ones to count by.
    """
    place = np.asarray(positions, dtype=np.int64)
    wanted = sorted({*MODULI, *moduli})
    counts = {m: np.bincount(place % m, minlength=m) for m in wanted}
    plain = {m: tuple(map(int, counts[m])) for m in wanted if m in SHOWN or m in moduli}
    n = len(place)
    locks = [(m, int(c.argmax()), int(c.max())) for m, c in counts.items() if _locked(m, c, n)]
    if locks:
        # Where most stand; of equals the largest modulus, which says most.
        return Residues(plain, n, "locked", max(locks, key=lambda lock: (lock[2], lock[0])))
    if n < EACH * max(SHOWN):
        return Residues(plain, n, "few")
    uneven = any(_chi2_p(counts[m]) < UNEVEN_P for m in SHOWN)
    return Residues(plain, n, "uneven" if uneven else "spread")


def _locked(modulus: int, counts: np.ndarray[Any, np.dtype[np.int64]], n: int) -> bool:
    from scipy import special

    top = int(counts.max())
    if top < (TWO_SHARE if modulus == 2 else LOCKED_SHARE) * n or n < 2:
        return False
    return bool(modulus * special.bdtrc(top - 1, n, 1 / modulus) <= LOCKED_P)


def _chi2_p(counts: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    from scipy import special

    expected = counts.sum() / len(counts)
    return float(special.chdtrc(len(counts) - 1, (np.square(counts - expected) / expected).sum()))


__all__ = ["Residues", "Spread", "residues"]
