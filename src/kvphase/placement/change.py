"""Other versions of a prompt: marked spans moved to its head or tail, or standing there twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kvphase.placement.filler import Choice, inserted, shelf, with_filler
from kvphase.placement.grid import Stand
from kvphase.placement.prompt import Prompt, Span
from kvphase.runs.shift_place import head_spots, paragraph_starts
from kvphase.runs.shift_source import Place as Spot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runs.shift_place import Rendered
    from kvphase.runs.shift_source import Source
    from kvphase.types import Runtime

Way = Literal["pad", "head", "tail", "repeat"]
WAYS: tuple[Way, ...] = ("pad", "head", "tail", "repeat")
_TRIES = 12
"""Fillers that are tried for one copy before it is given up."""


def key(spot: Spot) -> tuple[int, int]:
    """For comparing places in the order of the prompt."""
    return spot.field, spot.offset


def slots(prompt: Prompt, spans: Sequence[Span]) -> list[list[Spot]]:
    """For each span the places between it and the span before where filler may go, latest first.

    The user's own if there are any; else where `kvphase shift` would put it. Empty where the span
    can only move together with the one before.
    """
    found: list[list[Spot]] = []
    before = (0, 0)
    for span in spans:
        here = key(span.begin)
        if prompt.pads:
            places = [pad for pad in prompt.pads[::-1] if before <= key(pad) <= here]
        else:
            places = head_spots(replace(prompt.source, begin=span.begin))
            places = [one for one in places if before <= key(one) <= here]
        torn = [one for one in prompt.spans if one.kind == "marked"]
        found.append([one for one in places if not any(_inside(one, span) for span in torn)])
        before = key(span.end)
    return found


def _inside(spot: Spot, span: Span) -> bool:
    return key(span.begin) < key(spot) < key(span.end)


def moved(prompt: Prompt, spans: Sequence[Span], place: Literal["head", "tail"]) -> Prompt | None:
    """``spans`` taken out and put together at the head or the tail of their text.

    The tail is the user's last mark for filler behind the spans, else the last paragraph, else the
    last line. Filler may then go before each of them.

    Returns:
        The prompt with these spans alone; None where there is no such place.
    """
    if not spans or len({span.begin.field for span in spans}) > 1:
        return None
    number = spans[0].begin.field
    text = prompt.source.fields[number]
    spot = 0 if place == "head" else _tail(prompt, number, text, spans[-1].end.offset)
    if spot is None:
        return None
    rest, spot = _without(text, spans, spot)
    new, kept = rest[:spot], list[Span]()
    for span in spans:
        words = span.text(prompt.source)
        kept.append(Span(span.kind, Spot(number, len(new)), Spot(number, len(new) + len(words))))
        new += words + _gap(text, words)
    fields = list(prompt.source.fields)
    fields[number] = new + rest[spot:]
    source = replace(prompt.source, fields=tuple(fields))
    return Prompt(source, tuple(kept), tuple(span.begin for span in kept))


def _tail(prompt: Prompt, number: int, text: str, end: int) -> int | None:
    marks = [pad.offset for pad in prompt.pads if pad.field == number and pad.offset >= end]
    if marks:
        return marks[-1]
    later = [at for at in paragraph_starts(text) if at > end]
    line = text.rstrip("\n").rfind("\n") + 1
    return later[-1] if later else line if line > end else None


def _without(text: str, spans: Sequence[Span], spot: int) -> tuple[str, int]:
    """The text without the spans and the line ends left over, and where ``spot`` is in it."""
    for span in spans[::-1]:
        before, after = text[: span.begin.offset], text[span.end.offset :]
        if before.endswith("\n") or not before:
            after = after.lstrip("\n")
        if spot > span.begin.offset:
            spot -= len(text) - len(before) - len(after)
        text = before + after
    return text, spot


def _gap(text: str, words: str) -> str:
    """What parts a moved span from what follows it."""
    if words.endswith("\n") or "\n" not in text:
        return ""
    return "\n\n" if "\n\n" in text else "\n"


@dataclass(frozen=True, slots=True)
class Doubled:
    """A prompt in which spans stand twice, half a stride apart."""

    source: Source
    ids: tuple[int, ...]
    stands: tuple[tuple[Stand, int], ...]
    """Where each span stands, and the start of its copy."""


async def doubled(
    runtime: Runtime,
    rendered: Rendered,
    source: Source,
    ids: tuple[int, ...],
    spans: Sequence[tuple[Span, Stand]],
    stride: int,
    seed: int,
) -> Doubled | None:
    """Put a copy behind each span so that the two start half a stride apart.

    The distance holds whatever comes before. The last span first: what was found before stays.

    Returns:
        None where a copy would change other tokens, or no filler gives the distance.
    """
    total = len(ids)
    grown: list[tuple[int, int]] = []
    for span, stand in reversed(spans):
        made = await _copied(runtime, rendered, source, ids, span, stand, stride, seed)
        if made is None:
            return None
        source, new, copy = made
        grown.append((len(new) - len(ids), copy - stand.start))
        ids = new
    found: list[tuple[Stand, int]] = []
    by = 0
    for (_, stand), (size, apart) in zip(spans, reversed(grown), strict=True):
        here = Stand(stand.start + by, stand.end + by, len(ids))
        found.append((here, here.start + apart))
        by += size
    if total + by != len(ids):
        return None
    return Doubled(source, ids, tuple(found))


async def _copied(
    runtime: Runtime,
    rendered: Rendered,
    source: Source,
    ids: tuple[int, ...],
    span: Span,
    stand: Stand,
    stride: int,
    seed: int,
) -> tuple[Source, tuple[int, ...], int] | None:
    """One span with its copy: the prompt, its ids, and the copy's first index."""
    for spot, words in _copies(source, span):
        longer = source.filled(spot, words)
        (twice,) = await rendered.ids([longer])
        at = inserted(ids, twice)
        if at is None or at[1] < stand.end:
            continue
        copy = await rendered.index(longer, spot, twice)
        size = (stride // 2 - (copy - stand.start)) % stride
        if not size:
            return longer, twice, copy
        kept = await shelf(runtime, longer, spot, 2 * stride - 1, seed)
        options = [(n, text) for n in kept.sizes if n % stride == size for text in kept.texts[n]]
        for n, text in options[:_TRIES]:
            choice = Choice(spot, n, text, stand.end, copy)
            made = await with_filler(rendered, longer, twice, [choice])
            if not isinstance(made, int):
                return made[0], made[1], copy + n
    return None


def _copies(source: Source, span: Span) -> list[tuple[Spot, str]]:
    """Where a copy may stand and as what, the nearest first."""
    number, end = span.end.field, span.end.offset
    text, words = source.fields[number], span.text(source)
    found = []
    line = text.find("\n", end)
    ends_line = line >= 0 and not text[end:line].strip()
    if ends_line:
        later = [at for at in paragraph_starts(text) if at > end]
        found += [(Spot(number, at), words + "\n\n") for at in later[:1]]
        found.append((Spot(number, line + 1), words + "\n"))
    # Latin sentences are parted by a space; Chinese ones, and words that bring theirs, are not.
    apart = not words[:1].isspace() and text[:end][-1:].isascii()
    found += [(span.end, f" {words}")] if apart else []
    return [*found, (span.end, words)]


__all__ = ["WAYS", "Doubled", "Way", "doubled", "key", "moved", "slots"]
