"""Filler of any length in tokens, and the proof that it changes nothing but positions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvphase.probes.fillers import FAMILIES, styles
from kvphase.runs.shift_place import (
    AROUND,
    UNKNOWN,
    comment_of,
    common,
    is_chinese,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runs.shift_place import Rendered
    from kvphase.runs.shift_source import Place as Spot
    from kvphase.runs.shift_source import Source
    from kvphase.types import Runtime

PER_SIZE = 4
"""Texts of each size that are kept."""
CHUNK, FIRST = 24, 6
"""Texts that are tokenized at once; a style is given up once none of some fits."""
_ONE = (" and", " so", " then", " the", "\n", " ", "。", ",")
"""Texts that are one token in many tokenizers."""


@dataclass(slots=True)
class Shelf:
    """Filler for one place: texts by their size in tokens, the most natural first."""

    spot: Spot
    texts: dict[int, list[str]] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Sizes of which there is a text left."""
        return sorted(size for size, texts in self.texts.items() if texts)

    def drop(self, size: int) -> None:
        """The first text of a size turned out not to be exact."""
        self.texts[size].pop(0)


async def shelf(runtime: Runtime, source: Source, spot: Spot, most: int, seed: int) -> Shelf:
    """Texts that move what follows ``spot`` by 1 to ``most`` tokens.

    Only the surroundings are tokenized here; whoever uses a text proves it on the whole prompt.

    Args:
        runtime: Whose tokenizer counts.
        source: The prompt.
        spot: Where filler goes.
        most: Longest size wanted.
        seed: Which phrase comes first.
    """
    text = source.fields[spot.field]
    left = text[max(0, spot.offset - AROUND) : spot.offset]
    right = text[spot.offset : spot.offset + AROUND]
    (plain,) = await runtime.tokenize([left + right], special=False)
    found = Shelf(spot)
    for texts in _candidates(source, left, right, seed):
        for first in (0, *range(FIRST, len(texts), CHUNK)):
            some = texts[first : first + CHUNK if first else FIRST]
            if not await _put(runtime, found, some, (left, right, tuple(plain)), most):
                break
            if all(found.texts.get(size) for size in range(1, most + 1)):
                return found
    await _lengthened(runtime, found, (left, right, tuple(plain)), most)
    return found


def _candidates(source: Source, left: str, right: str, seed: int) -> list[list[str]]:
    block = (not left or left.endswith("\n")) and not right.startswith((" ", "\t"))
    chinese, comment = is_chinese(source.text), comment_of(source.text)
    lists = []
    for family in FAMILIES:
        lists += styles(family, chinese=chinese, comment=comment, block=block, seed=seed)
    return [*lists, list(_ONE)]


async def _put(
    runtime: Runtime,
    found: Shelf,
    texts: Sequence[str],
    around: tuple[str, str, tuple[int, ...]],
    most: int,
) -> bool:
    """Keep the texts that are exact between their surroundings.

    Returns:
        Whether any of them was, of whatever length.
    """
    left, right, plain = around
    got = await runtime.tokenize([left + one + right for one in texts], special=False)
    fits = False
    for one, ids in zip(texts, got, strict=True):
        if inserted(plain, ids) is None:
            continue
        fits = True
        size = len(ids) - len(plain)
        kept = found.texts.setdefault(size, []) if size <= most else []
        if len(kept) < PER_SIZE:
            kept.append(one)
    return fits


async def _lengthened(
    runtime: Runtime, found: Shelf, around: tuple[str, str, tuple[int, ...]], most: int
) -> None:
    """Sizes that no single text has, from two or three different ones."""
    for _ in range(3):
        sizes = found.sizes
        missing = [size for size in range(1, most + 1) if size not in sizes]
        if not missing or not sizes:
            return
        pairs = []
        for size in missing:
            for first in sizes[::-1][:24]:
                if size - first in sizes and size - first != first:
                    pairs.append(found.texts[first][0] + found.texts[size - first][0])
                    break
        if not pairs:
            return
        await _put(runtime, found, pairs, around, most)


def inserted(base: Sequence[int], longer: Sequence[int]) -> tuple[int, int] | None:
    """First and last index in ``base`` at which ids were put in; None if anything else changed.

    There are several where the ids put in begin as what follows them does.
    """
    size = len(longer) - len(base)
    # A piece of a toy's prompt may begin inside a word that only the whole word spells.
    if size <= 0 or longer.count(UNKNOWN) > base.count(UNKNOWN):
        return None
    last = common(base, longer)
    behind = common(base[::-1], longer[::-1])
    return (len(base) - behind, last) if last + behind >= len(base) else None


@dataclass(frozen=True, slots=True)
class Choice:
    """Filler that is to be put in, and between which tokens."""

    spot: Spot
    size: int
    text: str
    earliest: int
    """Index before which everything has to stay where it is."""
    latest: int
    """Index from which on everything has to move."""


@dataclass(frozen=True, slots=True)
class Put:
    """Filler put in."""

    spot: Spot
    """In the prompt as it is."""
    at: int
    """Index of the token before which it stands, in the prompt as it is."""
    size: int
    text: str


async def with_filler(
    rendered: Rendered,
    source: Source,
    ids: tuple[int, ...],
    chosen: Sequence[Choice],
) -> tuple[Source, tuple[int, ...], tuple[Put, ...]] | int:
    """All filler put in at once, last place first, each step proved on the whole prompt.

    Args:
        rendered: Of the target.
        source: The prompt as it is.
        ids: Its ids.
        chosen: In the order of the prompt; indices are those of the prompt as it is.

    Returns:
        The prompt with its filler, its ids and what was put in; or which of ``chosen`` was not
        exact.
    """
    versions = [source]
    for one in reversed(chosen):
        versions.append(versions[-1].filled(one.spot, one.text))
    steps = [ids, *(await rendered.ids(versions[1:]) if chosen else [])]
    puts: list[Put] = []
    for number, one in enumerate(reversed(chosen)):
        at = inserted(steps[number], steps[number + 1])
        grown = len(steps[number + 1]) - len(steps[number])
        if at is None or grown != one.size or at[0] > one.latest or at[1] < one.earliest:
            return len(chosen) - 1 - number
        puts.append(Put(one.spot, min(at[1], one.latest), one.size, one.text))
    return versions[-1], steps[-1], tuple(reversed(puts))


__all__ = ["Choice", "Put", "Shelf", "inserted", "shelf", "with_filler"]
