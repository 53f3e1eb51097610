"""Finds where filler may go in a user's prompt, and filler that moves the rest by exactly k tokens.

Every padded prompt is rendered and tokenized whole by the target's own side. It is used only if
taking some k tokens out of it gives the prompt without filler back, id by id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.fillers import FamilyName, styles
from kvphase.probes.shift import BASE, PHASES, Place, Placed, Sweep
from kvphase.runs.shift_source import Place as Spot
from kvphase.runs.shift_source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Runtime

AROUND = 200
"""Characters on either side that are tokenized with a filler to guess its length."""
WORTH = 64
"""Shared tokens from which on a prefix is kept in the server's cache."""
UNKNOWN = 2**31 - 1
"""What stands in a toy's prompt for a character that it cannot spell."""
_BLANK = re.compile(r"(?:\r?\n[ \t]*){2,}")
_HEADING = re.compile(r"^(#{1,6}\s.*|[=\-~]{3,}\s*|.*[::])$")
_COMMENT = re.compile(r"^\s*(#|//|--|/\*|\*|;|%|<!--)")
_MARKER = "kvphase7marker1here"


class Rendered:
    """Renders and tokenizes variants of one prompt."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def texts(self, sources: Sequence[Source]) -> list[str]:
        """Each variant as the text that the model reads, BOS left out.

        Raises:
            UsageError: it is a chat and the target renders none.
        """
        if all(source.body is None for source in sources):
            return [source.fields[0] for source in sources]
        render = getattr(self._runtime, "render", None)
        if render is None:
            raise UsageError(message("shift.no-chat"))
        return [await render(source.request()) for source in sources]

    async def ids(self, sources: Sequence[Source]) -> list[tuple[int, ...]]:
        """Each variant as ids, BOS once."""
        bos = self._runtime.limits.bos
        got = await self._runtime.tokenize(await self.texts(sources), special=True)
        whole = [tuple(one) for one in got]
        return [ids if bos and ids[: len(bos)] == bos else (*bos, *ids) for ids in whole]

    async def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of pieces of text."""
        return [len(ids) for ids in await self._runtime.tokenize(texts, special=False)]

    async def unspelled(self, text: str) -> int:
        """Offset of the first character that a toy cannot spell; the length if it can all."""
        (ids,) = await self._runtime.tokenize([text], special=True)
        if UNKNOWN not in ids:
            return len(text)
        wanted = ids[: ids.index(UNKNOWN) + 1]
        low, high = 0, len(text)
        while high - low > 1:  # a beginning of `high` characters holds it, one of `low` does not
            middle = (low + high) // 2
            (got,) = await self._runtime.tokenize([text[:middle]], special=True)
            low, high = (low, middle) if got[: len(wanted)] == wanted else (middle, high)
        return low

    async def index(self, source: Source, spot: Spot, ids: Sequence[int]) -> int:
        """Index of the token that holds the character behind ``spot``."""
        (text,) = await self.texts([source.filled(spot, _MARKER)])
        before = text[: text.find(_MARKER)]
        (got,) = await self._runtime.tokenize([before], special=True)
        bos = self._runtime.limits.bos
        start = 0 if tuple(got[: len(bos)]) == bos and bos else len(bos)
        # A word's own space belongs to its token: what stands before may end in another token.
        return min(start + common(got, ids[start:]), len(ids))


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def head_spots(source: Source) -> list[Spot]:
    """Where filler may go so that the marked span moves, the latest first.

    The user's marker if there is one; else blank lines before the marked span, then the start. No
    heading is parted from its body, no comment from its code, no block of code torn apart.
    """
    if source.pad is not None:
        return [source.pad]
    spots = [Spot(0, 0)]
    if source.begin is not None:
        for number in range(source.begin.field + 1):
            text = source.fields[number]
            end = source.begin.offset if number == source.begin.field else len(text)
            if number and (source.body is None or _may_open(source, number)):
                spots.append(Spot(number, 0))
            spots += [Spot(number, at) for at in paragraph_starts(text) if at <= end]
    return spots[::-1]


def tail_spots(source: Source) -> list[Spot]:
    """Where filler may go so that only what follows the marked span moves, the latest first."""
    if source.end is None:
        return []
    if source.tail_pad is not None:
        return [source.tail_pad]
    spots = []
    number = source.end.field
    text, end = source.fields[number], source.end.offset
    line = text.find("\n", end)
    if text[end:].strip():
        spots.append(Spot(number, end if line < 0 else line + 1))
    spots += [Spot(number, at) for at in paragraph_starts(text) if at > end]
    later = [n for n in range(number + 1, len(source.fields)) if _may_open(source, n)]
    spots += [Spot(n, 0) for n in later if source.fields[n].strip()]
    return [spot for spot in dict.fromkeys(spots) if _followed(source, spot)][::-1]


def _followed(source: Source, spot: Spot) -> bool:
    return bool(source.fields[spot.field][spot.offset :].strip()) or source.body is not None


def _may_open(source: Source, number: int) -> bool:
    """Whether a text opens a message that is not the model's own."""
    at, part = source.where[number]
    role = (source.body or {})["messages"][at]["role"]
    return part <= 0 and role not in ("assistant", "tool")


def paragraph_starts(text: str) -> list[int]:
    """Offsets behind blank lines at which a paragraph begins that may be parted from the last."""
    found = []
    for gap in _BLANK.finditer(text):
        before, after = text[: gap.start()].rstrip(), text[gap.end() :]
        lines = before.splitlines()
        fenced = sum(line.lstrip().startswith(("```", "~~~")) for line in lines) % 2
        indented = gap.group().endswith((" ", "\t"))
        last = lines[-1] if lines else ""
        heading = bool(_HEADING.match(last)) and not _COMMENT.match(last[1:])
        above = re.split(r"\n\s*\n", before)[-1].splitlines() if before else []
        comment = bool(above) and all(_COMMENT.match(line) for line in above)
        if after.strip() and lines and not (fenced or indented or heading or comment):
            found.append(gap.end())
    return found


@dataclass(frozen=True, slots=True)
class Base:
    """The prompt as it is."""

    ids: tuple[int, ...]
    target: int
    """Index of the marked span's first token; -1 where nothing is marked."""
    question: int
    """Index from which on everything moves with the tail's filler; the length without one."""


async def fill(
    rendered: Rendered,
    source: Source,
    base: Base,
    spot: Spot,
    family: FamilyName,
    count: int,
    seed: int,
) -> list[tuple[tuple[int, ...], int]] | None:
    """Prompts with `BASE`, `BASE` + 1, ... filler tokens at ``spot``, and where these begin.

    Returns:
        None where no style of the family gives all ``count`` of them exactly.
    """
    text = source.fields[spot.field]
    left = text[max(0, spot.offset - AROUND) : spot.offset]
    right = text[spot.offset : spot.offset + AROUND]
    block = (not left or left.endswith("\n")) and not right.startswith((" ", "\t"))
    comment = comment_of(source.text)
    for texts in styles(
        family, chinese=is_chinese(source.text), comment=comment, block=block, seed=seed
    ):
        lengths = await rendered.lengths([left + right, *(left + one + right for one in texts)])
        by_size: dict[int, list[str]] = {}
        for one, size in zip(texts, lengths[1:], strict=True):
            by_size.setdefault(size - lengths[0], []).append(one)
        wanted = range(BASE, BASE + count)
        if not all(size in by_size for size in wanted):
            continue
        found = await _exact(rendered, source, base, spot, [by_size[size] for size in wanted])
        if found is not None:
            return found
    return None


async def _exact(
    rendered: Rendered,
    source: Source,
    base: Base,
    spot: Spot,
    choices: Sequence[Sequence[str]],
) -> list[tuple[tuple[int, ...], int]] | None:
    """Of each list the first text that moves the rest by its size, and nothing else."""
    found: list[tuple[tuple[int, ...], int] | None] = [None] * len(choices)
    for number in range(3):
        missing = [i for i, one in enumerate(found) if one is None and len(choices[i]) > number]
        if not missing:
            break
        got = await rendered.ids([source.filled(spot, choices[i][number]) for i in missing])
        for i, ids in zip(missing, got, strict=True):
            at = moved_at(base.ids, ids, BASE + i)
            found[i] = None if at is None else (ids, at)
        if all(one is None for one in found):
            return None
    exact = [one for one in found if one is not None]
    return exact if len(exact) == len(found) else None


def moved_at(base: Sequence[int], padded: Sequence[int], size: int) -> int | None:
    """Index at which ``size`` ids were put into ``base``; None if anything else changed."""
    if len(padded) != len(base) + size or max(padded) >= UNKNOWN:
        return None
    start = common(base, padded)
    behind = common(base[::-1], padded[::-1])
    return start if start + behind >= len(base) else None


def comment_of(text: str) -> str:
    """What opens most comments of a text; ``#`` where there is none."""
    signs = {sign: len(re.findall(rf"(?m)^\s*{sign}\s", text)) for sign in ("#", "//", "--", ";")}
    best = max(signs, key=lambda sign: signs[sign])
    return best if signs[best] else "#"


def is_chinese(text: str) -> bool:
    """Whether at least three in ten of its letters are Chinese characters."""
    letters = [c for c in text[:20_000] if c.isalpha()]
    chinese = sum("\u4e00" <= c <= "\u9fff" for c in letters)
    return bool(letters) and chinese >= 0.3 * len(letters)


async def head_sweeps(
    rendered: Rendered,
    source: Source,
    base: Base,
    families: Sequence[FamilyName],
    count: int,
    seed: int,
    most: int,
) -> list[Sweep]:
    """Sweeps that move the marked span, at the latest place where a family is exact.

    Args:
        rendered: Of the target.
        source: The prompt.
        base: The same, placed.
        families: In order of preference.
        count: Shifts.
        seed: Of the filler.
        most: Families wanted.
    """
    for spot in head_spots(source):
        sweeps: list[Sweep] = []
        for family in families:
            got = await fill(rendered, source, base, spot, family, count, seed)
            if got is not None and (base.target < 0 or got[0][1] <= base.target):
                sweeps.append(Sweep(family, _placed(got, base, moves_target=True)))
            if len(sweeps) == most:
                break
        if sweeps:
            return sweeps
    return []


async def tail_sweep(
    rendered: Rendered,
    source: Source,
    base: Base,
    families: Sequence[FamilyName],
    count: int,
    seed: int,
) -> Sweep | None:
    """A sweep that moves only what follows the marked span; None where there is no place."""
    for spot in tail_spots(source):
        for family in families:
            got = await fill(rendered, source, base, spot, family, count, seed)
            if got is not None and got[0][1] > base.target:
                # From here on every one of them is the prompt's own tokens.
                question = max(at for _, at in got)
                whole = replace(base, question=question)
                return Sweep(family, _placed(got, whole, moves_target=False))
    return None


def _placed(
    got: Sequence[tuple[tuple[int, ...], int]], base: Base, *, moves_target: bool
) -> tuple[Placed, ...]:
    """With what all shifts share, and where span and question stand in each."""
    shared = min(at for _, at in got)
    for ids, _ in got[1:]:
        shared = min(shared, common(got[0][0], ids))
    placed = []
    for i, (ids, at) in enumerate(got):
        pad = BASE + i
        target = base.target if base.target >= 0 else at
        placed.append(
            Placed(
                ids=ids,
                pad=pad,
                target=target + (pad if moves_target else 0),
                question=base.question + pad,
                shared=shared if shared >= WORTH else 0,
            )
        )
    return tuple(placed)


def moved(source: Source, place: Place) -> Source | None:
    """The prompt with its marked span at the head or at the tail; None where there is no place.

    The head is the start of the text that the span stands in, the tail the user's marker behind
    the span, else the last blank line of that text, else its last line.
    """
    begin, end = source.begin, source.end
    if begin is None or end is None or begin.field != end.field:
        return None
    text = source.fields[begin.field]
    span = text[begin.offset : end.offset]
    spot = 0
    if place == "tail":
        found = _last_place(source, text, end)
        if found is None:
            return None
        spot = found
    gap = _gap(text, span)
    rest = _closed(text[: begin.offset], text[end.offset :])
    if spot:
        spot -= len(text) - len(rest)
    new = rest[:spot] + span + gap + rest[spot:]
    fields = (*source.fields[: begin.field], new, *source.fields[begin.field + 1 :])
    return replace(
        source,
        fields=fields,
        begin=Spot(begin.field, spot),
        end=Spot(begin.field, spot + len(span)),
        pad=None if source.pad is None else Spot(begin.field, 0),
        tail_pad=None,
    )


def _last_place(source: Source, text: str, end: Spot) -> int | None:
    if source.tail_pad is not None:
        return source.tail_pad.offset if source.tail_pad.field == end.field else None
    later = [at for at in paragraph_starts(text) if at > end.offset]
    if later:
        return later[-1]
    line = text.rstrip("\n").rfind("\n")
    return line + 1 if line + 1 > end.offset else None


def _gap(text: str, span: str) -> str:
    """What parts the moved span from what follows it."""
    if span.endswith("\n") or "\n" not in text:
        return ""
    return "\n\n" if "\n\n" in text else "\n"


def _closed(before: str, after: str) -> str:
    """The rest without the line ends that would be left over."""
    if before.endswith("\n") or not before:
        after = after.lstrip("\n")
    return before + after


__all__ = ["PHASES", "Base", "Rendered", "fill", "head_sweeps", "moved", "tail_sweep"]
