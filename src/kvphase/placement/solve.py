"""How many tokens of filler before each span: solved exactly for all spans together.

Filler before one span moves every later one as well. Only residues modulo the period matter, so
the best way to each residue after each place is all that has to be remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SAME = 1e-9
"""Values closer than this count as equal: then fewer tokens win."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One span, as far as its place matters."""

    start: int
    """Index of its first token in the prompt as it is."""
    slot: int
    """The last place for filler before it; -1 where there is none."""
    value: NDArray[np.float64]
    """What it is worth at each residue of its start, shape (period,)."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The best sizes."""

    sizes: tuple[int, ...]
    """Tokens of filler at each place, in the order of the prompt."""
    value: float
    """Sum over the spans."""

    @property
    def tokens(self) -> int:
        """Tokens of filler altogether."""
        return sum(self.sizes)


def solve(wishes: Sequence[Wish], sizes: Sequence[Sequence[int]], period: int) -> Solution:
    """The sizes with the largest sum of values; of several the fewest tokens, then places.

    Args:
        wishes: The spans, in any order.
        sizes: For each place the positive sizes that filler can have there.
        period: What positions are taken modulo.

    Returns:
        One size for each place, 0 where nothing is put in.
    """
    still = sum(float(one.value[one.start % period]) for one in wishes if one.slot < 0)
    states: dict[int, State] = {0: (still, 0, 0, ())}
    for slot, choices in enumerate(sizes):
        worth = np.zeros(period)
        for one in (one for one in wishes if one.slot == slot):
            worth += one.value[(one.start + np.arange(period)) % period]
        states = _step(states, worth, _shortest(choices, period))
    best = states.pop(next(iter(states)))
    for found in states.values():
        best = found if _better(found, best) else best
    return Solution(best[3], best[0])


State = tuple[float, int, int, tuple[int, ...]]
"""The best way to one residue of all filler so far: value, -tokens, -places, and the sizes."""


def _step(
    states: dict[int, State], worth: NDArray[np.float64], sizes: Sequence[int]
) -> dict[int, State]:
    """The best way to each residue after one more place, where a residue is ``worth`` so much."""
    after: dict[int, State] = {}
    for size in (0, *sizes):
        for residue, (value, tokens, places, path) in states.items():
            to = (residue + size) % len(worth)
            gain = value + float(worth[to])
            new = (gain, tokens - size, places - bool(size), (*path, size))
            if to not in after or _better(new, after[to]):
                after[to] = new
    return after


def _shortest(choices: Sequence[int], period: int) -> list[int]:
    """Of the sizes with one residue only the smallest can be best; residue 0 is nothing at all."""
    least: dict[int, int] = {}
    for size in sorted(choices):
        if size % period:
            least.setdefault(size % period, size)
    return list(least.values())


def _better(one: State, other: State) -> bool:
    if abs(one[0] - other[0]) > SAME:
        return one[0] > other[0]
    return one[1:3] > other[1:3]


__all__ = ["Solution", "Wish", "solve"]
