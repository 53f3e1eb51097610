"""Where the spans of a prompt stand, and the change that puts them where they are found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.placement.change import doubled, moved, slots
from kvphase.placement.filler import Choice, shelf, with_filler
from kvphase.placement.found import Layout, Placed, Wanted
from kvphase.placement.grid import NEEDLE, Stand
from kvphase.placement.options import ENOUGH, Bench, worth
from kvphase.placement.solve import Solution, Wish, solve
from kvphase.runs.shift_place import UNKNOWN, Rendered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.placement.filler import Put, Shelf
    from kvphase.placement.found import Option
    from kvphase.placement.prompt import Prompt, Span
    from kvphase.runs.shift_source import Source
    from kvphase.types import CurvePoint, Runtime

_SPOTS = 6
"""Places that are tried for one span."""
_TRIES = 60
"""Fillers that may turn out not to be exact on the whole prompt before the search ends."""


async def lay_out(runtime: Runtime, prompt: Prompt, wanted: Wanted) -> Layout:
    """Place the spans with the target's own tokenizer and solve for the change that is wanted.

    Raises:
        UsageError: the prompt cannot be spelled or does not fit, or the change cannot be made.
    """
    bench = Bench(runtime, Rendered(runtime), prompt, wanted)
    work = _Work(bench)
    ids = await bench.ids(prompt.source)
    if max(ids) >= UNKNOWN:
        name = prompt.source.name
        raise UsageError(message("shift.unspelled", name=name, at=ids.index(max(ids))))
    work.must_fit(ids)
    stands = [await bench.stand(prompt.source, span, ids) for span in prompt.spans]
    changed = await work.changed(ids, stands)
    work.must_fit(changed.ids)
    spans = []
    for number, (span, stand) in enumerate(zip(prompt.spans, stands, strict=True)):
        options = await bench.options(span, stand, ids) if span.kind == "marked" else ()
        spans.append(work.placed(span, stand, changed, number, options))
    return Layout(
        name=prompt.source.name,
        total=len(ids),
        total_after=len(changed.ids),
        basis=wanted.basis,
        grid=wanted.grid,
        period=wanted.period,
        way=wanted.way,
        marked=prompt.marked,
        spans=tuple(spans),
        puts=changed.puts,
        source=prompt.source,
        changed=changed.source,
        ids=ids,
        ids_after=changed.ids,
        notes=changed.notes,
    )


@dataclass(frozen=True, slots=True)
class _Changed:
    """The changed prompt, and where its spans stand."""

    source: Source
    ids: tuple[int, ...]
    puts: tuple[Put, ...]
    stands: tuple[Stand | None, ...]
    """None where a span's new place was not looked up."""
    copies: tuple[int | None, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Work:
    """One prompt in hand."""

    bench: Bench

    @property
    def wanted(self) -> Wanted:
        """What is known and wanted."""
        return self.bench.wanted

    @property
    def prompt(self) -> Prompt:
        """As it is."""
        return self.bench.prompt

    def must_fit(self, ids: Sequence[int]) -> None:
        """Refuse a prompt that leaves no room for an answer."""
        most = self.bench.runtime.limits.context_tokens
        if len(ids) >= most:
            name = self.prompt.source.name
            raise UsageError(message("layout.too-long", name=name, n=len(ids), most=most))

    async def changed(self, ids: tuple[int, ...], stands: Sequence[Stand]) -> _Changed:
        """The prompt with the change that is wanted, solved for all spans together."""
        same = _Changed(self.prompt.source, ids, (), tuple(stands), tuple(None for _ in stands))
        way = self.wanted.way
        pairs = list(zip(self.prompt.spans, stands, strict=True))
        chosen = [i for i, (s, at) in enumerate(pairs) if s.kind == "marked" and at.needle]
        if way == "pad":
            return await self._padded(self.prompt, same)
        if self.wanted.basis in ("flat", "full", "nothing"):
            return same
        if not chosen:
            raise UsageError(message("layout.no-needle", name=self.prompt.source.name, most=NEEDLE))
        if way == "repeat":
            return await self._repeated(same, chosen)
        spans = [self.prompt.spans[i] for i in chosen]
        other = moved(self.prompt, spans, "head" if way == "head" else "tail")
        if other is None:
            raise UsageError(message("layout.no-place", name=self.prompt.source.name, way=way))
        ids = await self.bench.ids(other.source)
        places = [await self.bench.stand(other.source, span, ids) for span in other.spans]
        start = _Changed(other.source, ids, (), tuple(places), tuple(None for _ in places))
        found = await self._padded(other, start)
        back: list[Stand | None] = [None] * len(stands)
        for i, at in zip(chosen, found.stands, strict=True):
            back[i] = at
        return replace(found, stands=tuple(back), copies=same.copies)

    async def _repeated(self, same: _Changed, chosen: Sequence[int]) -> _Changed:
        grid = self.wanted.grid
        stride = self.wanted.period if self.wanted.basis == "profile" else grid and grid.stride
        if not stride or stride < 2:
            raise UsageError(message("layout.repeat-stride"))
        standing = [(i, same.stands[i]) for i in chosen]
        pairs = [(self.prompt.spans[i], at) for i, at in standing if at is not None]
        twice = await doubled(
            self.bench.runtime,
            self.bench.rendered,
            same.source,
            same.ids,
            pairs,
            stride,
            self.wanted.seed,
        )
        if twice is None:
            raise UsageError(message("layout.no-repeat", name=self.prompt.source.name))
        by_span = dict(zip(chosen, twice.stands, strict=True))
        stands, copies = list[Stand | None](), list[int | None]()
        for i in range(len(same.stands)):
            at, copy = by_span.get(i, (None, None))
            stands.append(at)
            copies.append(copy)
        return _Changed(twice.source, twice.ids, (), tuple(stands), tuple(copies))

    async def _padded(self, prompt: Prompt, same: _Changed) -> _Changed:
        """Filler before the spans whose place matters."""
        stands = [stand for stand in same.stands if stand is not None]
        values = [worth(self.wanted, stand) for stand in stands]
        picked = [i for i, one in enumerate(values) if np.ptp(one) > 0]
        if not picked:
            return same
        shelves, slot_of = await self._shelves(prompt, [prompt.spans[i] for i in picked])
        wishes = [
            Wish(stands[i].start, slot, values[i]) for i, slot in zip(picked, slot_of, strict=True)
        ]
        bounds = _bounds(wishes, [stands[i] for i in picked], len(shelves))
        notes: tuple[str, ...] = ()
        if not shelves:
            notes = (message("layout.note-no-slot"),)
        for _ in range(_TRIES):
            solution = solve(wishes, [one.sizes for one in shelves], self.wanted.period)
            chosen = [
                (n, Choice(one.spot, size, one.texts[size][0], *bounds[n]))
                for n, (one, size) in enumerate(zip(shelves, solution.sizes, strict=True))
                if size
            ]
            made = await with_filler(
                self.bench.rendered, same.source, same.ids, [c for _, c in chosen]
            )
            if isinstance(made, int):
                number, bad = chosen[made]
                shelves[number].drop(bad.size)
                continue
            return _moved_on(same, made, notes, _tied(wishes, solution))
        return replace(same, notes=(message("layout.note-inexact"),))

    async def _shelves(
        self, prompt: Prompt, spans: Sequence[Span]
    ) -> tuple[list[Shelf], list[int]]:
        """Filler for each place that is used, and the last place before each span."""
        shelves: list[Shelf] = []
        slot_of: list[int] = []
        period = self.wanted.period
        for spots in slots(prompt, spans):
            best: Shelf | None = None
            for spot in spots[:_SPOTS] + spots[_SPOTS:][-1:]:
                seed = self.wanted.seed + len(shelves)
                got = await shelf(self.bench.runtime, prompt.source, spot, 2 * period - 1, seed)
                if best is None or _residues(got, period) > _residues(best, period):
                    best = got
                if _residues(best, period) == period - 1:
                    break
            if best is not None and best.sizes:
                shelves.append(best)
            slot_of.append(len(shelves) - 1)
        return shelves, slot_of

    def placed(
        self, span: Span, stand: Stand, changed: _Changed, number: int, options: tuple[Option, ...]
    ) -> Placed:
        """One span before and after."""
        grid, after = self.wanted.grid, changed.stands[number]
        local = self.bench.runtime.limits.local_window
        return Placed(
            kind=span.kind,
            text=span.text(self.prompt.source),
            before=stand,
            after=after,
            copy=changed.copies[number],
            straddles=None if grid is None else grid.straddles(stand.start, stand.end),
            straddles_after=(
                None if grid is None or after is None else grid.straddles(after.start, after.end)
            ),
            near=local is not None and stand.start >= stand.total - local,
            claim=self._claim(stand),
            claim_after=None if after is None else self._claim(after),
            options=options,
            cheapest=self.bench.cheapest(stand, options),
        )

    def _claim(self, stand: Stand) -> CurvePoint | None:
        profile = self.wanted.profile
        if self.wanted.basis != "profile" or profile is None or not stand.needle:
            return None
        return profile.at(stand.start)


def _residues(one: Shelf, period: int) -> int:
    return len({size % period for size in one.sizes} - {0})


def _bounds(wishes: Sequence[Wish], stands: Sequence[Stand], count: int) -> list[tuple[int, int]]:
    """For each place the index before which all must stay, and from which on all must move."""
    found = []
    for slot in range(count):
        before = [at.end for one, at in zip(wishes, stands, strict=True) if one.slot < slot]
        behind = [at.start for one, at in zip(wishes, stands, strict=True) if one.slot >= slot]
        found.append((max(before, default=0), min(behind)))
    return found


def _tied(wishes: Sequence[Wish], solution: Solution) -> int:
    """Spans that are not as well placed as each could be alone."""
    sizes = np.cumsum([0, *solution.sizes])
    period = len(wishes[0].value)
    got = [one.value[(one.start + int(sizes[one.slot + 1])) % period] for one in wishes]
    return sum(float(one.value.max() - v) > ENOUGH for one, v in zip(wishes, got, strict=True))


def _moved_on(
    same: _Changed,
    made: tuple[Source, tuple[int, ...], tuple[Put, ...]],
    notes: tuple[str, ...],
    tied: int,
) -> _Changed:
    """Every span moved by the filler before it."""
    source, ids, puts = made
    stands = tuple(
        None
        if stand is None
        else stand.moved(sum(put.size for put in puts if put.at <= stand.start), len(ids))
        for stand in same.stands
    )
    if tied:
        notes = (*notes, message("layout.note-tied", n=tied))
    return _Changed(source, ids, puts, stands, same.copies, notes)


__all__ = ["lay_out"]
