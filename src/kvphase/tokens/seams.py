"""Where a tokenizer puts its boundaries: whether pieces stay apart when they are joined.

Many short pieces are tested in few texts. A text that does not come out as expected is halved
until the pieces at fault stand alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvphase.types import Word

Tokenize = Callable[[Sequence[str]], Awaitable[list[list[int]]]]
"""Token ids of each text, without BOS; what looks like a special token is read as plain text."""

GROUP_CHARACTERS = 16_384
"""Longest text sent at once: long enough for few requests, short enough for any server."""


@dataclass(frozen=True, slots=True)
class Seam:
    """Two neighbouring pieces that a tokenizer does not keep apart."""

    left: str
    right: str

    def __str__(self) -> str:
        return f"{self.left!r} and {self.right!r}"


async def first_merge(tokenize: Tokenize, pieces: Sequence[str]) -> Seam | None:
    """The first two neighbours in ``pieces`` that fuse or are divided differently when joined."""
    texts = ["".join(pieces[: end + 1]) for end in range(len(pieces))]
    ids = await tokenize(texts)
    for end in range(1, len(pieces)):
        if ids[end][: len(ids[end - 1])] != ids[end - 1]:
            return Seam(pieces[end - 1], pieces[end])
    return None


async def closed(
    tokenize: Tokenize, texts: Sequence[str], lead: str, closing: int
) -> list[list[int]]:
    """Token ids of each of ``texts`` as it stands after ``lead`` and among the others.

    Args:
        tokenize: The tokenizer.
        texts: Pieces that should each end with the token ``closing`` and hold it only there.
        lead: A piece of the same kind; it keeps the start of the text away from the others.
        closing: The token that ends every piece.

    Returns:
        The ids of each piece; empty where its boundaries could not be told.
    """
    found: list[list[int]] = [[] for _ in texts]
    groups = _grouped([len(text) for text in texts])
    while groups:
        joined = [lead + "".join(texts[i] for i in group) for group in groups]
        retry: list[list[int]] = []
        for group, ids in zip(groups, await tokenize(joined), strict=True):
            parts = _split_after(ids, closing)
            if len(parts) == len(group) + 1:
                for i, part in zip(group, parts[1:], strict=True):
                    found[i] = part
            else:
                retry += _halves(group)
        groups = retry
    return found


async def holding(
    tokenize: Tokenize, units: Sequence[Sequence[Word]], lead: Sequence[Word]
) -> list[bool]:
    """Whether each unit comes out as exactly its words' tokens after ``lead`` or other units."""
    found = [False] * len(units)
    opening = "".join(word.text for word in lead)
    start = (await tokenize([opening]))[0]
    groups = _grouped([sum(len(word.text) for word in unit) for unit in units])
    while groups:
        words = [[word for i in group for word in units[i]] for group in groups]
        texts = [opening + "".join(word.text for word in line) for line in words]
        retry: list[list[int]] = []
        for group, line, ids in zip(groups, words, await tokenize(texts), strict=True):
            if ids == start + [word.id for word in line]:
                for i in group:
                    found[i] = True
            else:
                retry += _halves(group)
        groups = retry
    return found


def _grouped(lengths: Sequence[int]) -> list[list[int]]:
    """Consecutive indices, in groups of at most ``GROUP_CHARACTERS`` (or one item)."""
    groups: list[list[int]] = []
    room = 0
    for i, length in enumerate(lengths):
        if not groups or length > room:
            groups.append([])
            room = GROUP_CHARACTERS
        groups[-1].append(i)
        room -= length
    return groups


def _halves(group: list[int]) -> list[list[int]]:
    """Two halves of a group that failed; nothing is left to try of a single one."""
    middle = len(group) // 2
    return [group[:middle], group[middle:]] if middle else []


def _split_after(ids: Sequence[int], closing: int) -> list[list[int]]:
    """Split behind every ``closing``; ids after the last one belong to nothing and spoil it."""
    ends = [i + 1 for i, token in enumerate(ids) if token == closing]
    parts = [list(ids[a:b]) for a, b in zip(chain([0], ends), ends, strict=False)]
    return parts if ends and ends[-1] == len(ids) else []
