"""What could be done for one span alone, and what of it is cheapest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.placement.change import WAYS, Way, doubled, moved, slots
from kvphase.placement.found import Option, Wanted
from kvphase.placement.grid import Stand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.placement.prompt import Prompt, Span
    from kvphase.runs.shift_place import Rendered
    from kvphase.runs.shift_source import Source
    from kvphase.types import Runtime

ENOUGH = 0.005
"""Accuracy by which a change has to do better to count as better: half a point."""
_ORDER: tuple[Way, ...] = ("pad", "repeat", "tail", "head")
"""The ways from the one that changes least."""


def worth(wanted: Wanted, stand: Stand) -> NDArray[np.float64]:
    """What a span is worth at each residue of its start, shape (period,)."""
    period, profile, grid = wanted.period, wanted.profile, wanted.grid
    none = np.zeros(period)
    if wanted.basis == "profile" and profile is not None:
        return np.array([p.accuracy for p in profile.curve]) if stand.needle else none
    if grid is None or wanted.basis != "windows" or stand.tokens > grid.window:
        return none
    # Windows on: at the start of a text the first ones are cut.
    starts = period * grid.window + np.arange(period)
    cut = [grid.straddles(int(start), int(start) + stand.tokens) for start in starts]
    return -np.array(cut, np.float64)


@dataclass(frozen=True, slots=True)
class Bench:
    """One prompt, the tokenizer that reads it, and what is wanted."""

    runtime: Runtime
    rendered: Rendered
    prompt: Prompt
    wanted: Wanted

    async def ids(self, source: Source) -> tuple[int, ...]:
        """Of a version of the prompt."""
        (ids,) = await self.rendered.ids([source])
        return ids

    async def stand(self, source: Source, span: Span, ids: tuple[int, ...]) -> Stand:
        """From the token that holds its first character to the one that holds its last."""
        start = await self.rendered.index(source, span.begin, ids)
        last = replace(span.end, offset=span.end.offset - 1)
        end = await self.rendered.index(source, last, ids) + 1
        return Stand(start, max(end, start + 1), len(ids))

    async def options(self, span: Span, stand: Stand, ids: tuple[int, ...]) -> tuple[Option, ...]:
        """What could be done for one span alone; only where something is to be gained."""
        if self.wanted.basis not in ("profile", "windows") or not stand.needle:
            return ()
        found = []
        if any(slots(self.prompt, [span])[0]):
            found.append(self._aligned("pad", stand))
        for place in ("head", "tail"):
            other = moved(self.prompt, [span], "head" if place == "head" else "tail")
            if other is not None:
                there = await self.ids(other.source)
                at = await self.stand(other.source, other.spans[0], there)
                found.append(self._aligned("head" if place == "head" else "tail", at))
        found.append(await self._twice(span, stand, ids))
        had = {one.way: one for one in found}
        missing = Option("pad", possible=False, tokens=0, starts=(), expected=None)
        return tuple(had.get(way, replace(missing, way=way)) for way in WAYS)

    def _aligned(self, way: Way, stand: Stand) -> Option:
        """The fewest tokens before a span that put it where it is worth most."""
        values = worth(self.wanted, stand)
        period = self.wanted.period
        values = values[(stand.start + np.arange(period)) % period]
        size = int(np.argmax(values))
        claimed = self.wanted.basis == "profile"
        expected = float(values[size]) if claimed else None
        return Option(way, True, size, (stand.start + size,), expected)

    async def _twice(self, span: Span, stand: Stand, ids: tuple[int, ...]) -> Option:
        nothing = Option("repeat", possible=False, tokens=0, starts=(), expected=None)
        grid = self.wanted.grid
        stride = self.wanted.period if grid is None else grid.stride
        if stride < 2:
            return nothing
        twice = await doubled(
            self.runtime,
            self.rendered,
            self.prompt.source,
            ids,
            [(span, stand)],
            stride,
            self.wanted.seed,
        )
        if twice is None:
            return nothing
        (at, copy) = twice.stands[0]
        expected = least = None
        if self.wanted.basis == "profile":
            values = worth(self.wanted, stand)
            better = np.maximum(values, np.roll(values, -(copy - at.start)))
            expected = float(better[at.start % self.wanted.period])
            least = float(better.min())
        added = len(twice.ids) - len(ids)
        return Option("repeat", True, added, (at.start, copy), expected, least)

    def cheapest(self, stand: Stand, options: Sequence[Option]) -> Way | None:
        """Of the ways that reach the best phase: filler, else a copy, else a move.

        Filler costs no more than a move does, and a profile says nothing of depth, which a move
        changes too.

        Without a curve: what takes the span off an edge, else a copy.
        """
        able = [one for one in options if one.possible]
        if not able:
            return None
        if self.wanted.basis == "windows":
            cut = self.wanted.grid is not None and self.wanted.grid.straddles(
                stand.start, stand.end
            )
            mends = [one for one in able if one.way == ("pad" if cut else "repeat")]
            return mends[0].way if mends else None
        most = float(worth(self.wanted, stand).max())
        here = float(worth(self.wanted, stand)[stand.start % self.wanted.period])
        if most - here < ENOUGH:
            return None
        reach = [one for one in able if one.expected is not None and one.expected > most - ENOUGH]
        if not reach:
            return None
        return min(reach, key=lambda one: _ORDER.index(one.way)).way


__all__ = ["ENOUGH", "Bench", "worth"]
