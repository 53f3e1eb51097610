"""Formats of one text a file: the pass key in junk, and the story with numbers given to people."""

from __future__ import annotations

import re

from kvphase.probes.formats.items import Fact, Item, no_good, only_place, places

NUMBER_ROOM, LINES_ROOM = 16, 64
_PASSKEY = re.compile(r"pass\s?key\s+(?:is|=|:)\s*[\"']?(\d+)", re.IGNORECASE)
_ASSIGNED = re.compile(r"\b(\w+) was assigned the number ([a-z]+(?:-[a-z]+)?|\d+)\b")
_ASKS_LINES = re.compile(r"\bname\s*=\s*number\b", re.IGNORECASE)
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_EXPECTED = re.compile(r"(?m)^\s*(\w+)\s*=\s*(\d+)\s*$")
APART = re.compile(r"(?m)^-{3,}[ \t]*expected[ \t]*-*[ \t]*\r?\n", re.IGNORECASE)
"""A line behind which a story's file gives the expected lines itself."""


def is_passkey(text: str) -> bool:
    """Whether a text gives a pass key."""
    return _PASSKEY.search(text) is not None


def passkey(text: str) -> Item:
    """A text with a pass key in it, which is asked for at its end.

    Raises:
        UnusableError: several keys are given, or one in several places.
    """
    keys = list(dict.fromkeys(_PASSKEY.findall(text)))
    if len(keys) > 1:
        raise no_good("several-keys", count=len(keys))
    number, begin, end = only_place((text,), keys[0])
    return Item(1, (_ended(text),), (Fact((keys[0],), "number", number, begin, end),), NUMBER_ROOM)


def is_story(text: str) -> bool:
    """Whether a text gives numbers to people and asks for them as lines."""
    return _ASKS_LINES.search(text) is not None and _ASSIGNED.search(text) is not None


def story(text: str) -> Item:
    """A story as it stands, special tokens and all: one fact for each person.

    The expected lines are what the story says, or those behind a line ``--- expected ---``.

    Raises:
        UnusableError: a person has several numbers, a number cannot be read, or an expected line
            has nothing in the story.
    """
    parts = APART.split(text, maxsplit=1)
    prompt = parts[0]
    found = list(_ASSIGNED.finditer(prompt))
    wanted = dict(_EXPECTED.findall(parts[1])) if len(parts) > 1 else None
    facts = []
    for name in wanted if wanted is not None else dict.fromkeys(m[1] for m in found):
        mine = [m for m in found if m[1] == name]
        if len(mine) != 1:
            raise no_good("absent" if not mine else "several", answer=name, count=len(mine))
        said = _number(mine[0][2])
        if wanted is not None and said != int(wanted[name]):
            raise no_good("other-number", name=name, said=said, expected=wanted[name])
        line = f"{name}={said}"
        facts.append(Fact((line,), "line", 0, mine[0].start(2), mine[0].end(2)))
    shown = [fact for fact in facts if places((prompt,), fact.answers[0])]
    # The prompt itself gives one line as an example: whoever copies it has remembered nothing.
    asked = tuple(fact for fact in facts if fact not in shown)
    if not asked:
        raise no_good("no-answer")
    return Item(1, (_ended(prompt),), asked, LINES_ROOM)


def _number(word: str) -> int:
    """A number below a hundred in words or digits.

    Raises:
        UnusableError: it is none.
    """
    if word.isdecimal():
        return int(word)
    tens, _, ones = word.partition("-")
    if word in _ONES:
        return _ONES.index(word)
    if tens in _TENS and (not ones or ones in _ONES[1:10]):
        return 10 * (_TENS.index(tens) + 2) + (_ONES.index(ones) if ones else 0)
    raise no_good("odd-number", word=word)


def _ended(text: str) -> str:
    """Without the one line end that editors put last, as with llama.cpp's own tools."""
    return text.removesuffix("\n").removesuffix("\r")


__all__ = ["is_passkey", "is_story", "passkey", "story"]
