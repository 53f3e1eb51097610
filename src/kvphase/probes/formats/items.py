"""What every file of test prompts comes down to: prompts, and the facts that they ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kvphase.catalogue import message
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Message

FormatName = Literal["kv", "ruler", "json-kv", "passkey", "needle", "story", "chat"]
Rule = Literal["contains", "all", "number", "line", "exact", "choice", "regex", "json"]
ONE_PLACE = 200
"""Characters within which repetitions of an answer on one line are one fact, said twice."""

_CLOSING = re.compile("[\"'.,;:!?)\\]}\u3002\uff0c\uff1b\uff01\uff1f\u201d\u300d]*")
"""What closes a record or a sentence belongs to it: filler goes behind it."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a prompt asks for, and where it stands."""

    answers: tuple[str, ...]
    """What a right answer holds; several only where all of them stand at one place."""
    rule: Rule
    """How an answer is graded; see `kvphase.runs.dataset_grade`."""
    text: int
    """Which of the item's texts it stands in."""
    begin: int
    """Offset of its first character: what the position of the fact is the position of."""
    end: int
    """Offset behind its last character; filler for the control goes behind it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a file."""

    line: int
    """Line of the file it begins at, from 1; for a JSON list the number of the entry."""
    texts: tuple[str, ...]
    """The prompt; of a chat the text of each message's part."""
    facts: tuple[Fact, ...]
    room: int
    """Answer tokens to generate beyond those of the answers themselves."""
    body: dict[str, Any] | None = None
    """The request that the texts belong to; None for a plain prompt."""
    where: tuple[tuple[int, int], ...] = ()
    """(message, part) of each text of a chat; part -1 where the content is one string."""
    tokens: int | None = None
    """Answer tokens to generate, where the file says so."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """An entry of a file that cannot be measured."""

    line: int
    why: Message


@dataclass(frozen=True, slots=True)
class Dataset:
    """A file of test prompts."""

    name: str
    """Of the file, fit to be shown."""
    format: FormatName
    items: tuple[Item, ...]
    unusable: tuple[Unusable, ...] = field(default=())

    @property
    def facts(self) -> int:
        """Facts of all items."""
        return sum(len(item.facts) for item in self.items)


class UnusableError(Exception):
    """An entry that cannot be measured, and why; never leaves the readers of formats."""

    def __init__(self, why: Message) -> None:
        """Say ``why``."""
        super().__init__(str(why))
        self.why = why


def faulty(name: str, line: int, key: str, **values: object) -> UsageError:
    """An error about one line of a file; ``key`` is of the catalogue's dataset section."""
    return UsageError(message(f"dataset.{key}", file=name, line=line, **values))


def no_good(key: str, **values: object) -> UnusableError:
    """An entry cannot be measured; ``key`` is of the catalogue's dataset section."""
    return UnusableError(message(f"dataset.{key}", **values))


def places(texts: Sequence[str], wanted: str) -> list[tuple[int, int]]:
    """(text, offset) of each time ``wanted`` stands there as words of its own.

    A number inside a longer number and a name inside a longer word are something else.
    """
    before = r"(?<!\w)" if wanted[:1].isalnum() and wanted.isascii() else ""
    after = r"(?!\w)" if wanted[-1:].isalnum() and wanted.isascii() else ""
    pattern = re.compile(before + re.escape(wanted) + after)
    return [
        (number, found.start())
        for number, text in enumerate(texts)
        for found in pattern.finditer(text)
    ]


def only_place(texts: Sequence[str], wanted: str) -> tuple[int, int, int]:
    """(text, begin, end) of the one place where ``wanted`` stands.

    Said again on the same line and close by it is the same place, whose end is behind the last.

    Raises:
        UnusableError: it stands nowhere, or in several places.
    """
    found = places(texts, wanted)
    if not found:
        raise no_good("absent", answer=wanted[:60])
    number, begin = found[0]
    last = found[-1]
    between = texts[number][begin : last[1]] if last[0] == number else "\n"
    if "\n" in between or len(between) > ONE_PLACE:
        raise no_good("several", answer=wanted[:60], count=len(found))
    end = last[1] + len(wanted)
    closing = _CLOSING.match(texts[number], end)
    return number, begin, closing.end() if closing else end


def located(texts: Sequence[str], answers: Sequence[str], rule: Rule = "contains") -> list[Fact]:
    """A fact for every place that the answers stand in, in the order of places.

    Answers on one line and close together are one fact, all of whose strings must be found: no
    residue could be told for one of them alone. Any other answer has a position of its own and is
    a question of its own.

    Raises:
        UnusableError: one of the answers stands nowhere or in several places.
    """
    spots = sorted((*only_place(texts, answer), answer) for answer in dict.fromkeys(answers))
    facts: list[Fact] = []
    for number, begin, end, answer in spots:
        last = facts[-1] if facts else None
        if last is not None and last.text == number and _near(texts[number], last.end, begin):
            both = (*last.answers, answer)
            facts[-1] = Fact(both, "all", number, last.begin, max(end, last.end))
        else:
            facts.append(Fact((answer,), rule, number, begin, end))
    return facts


def _near(text: str, end: int, begin: int) -> bool:
    return begin - end <= ONE_PLACE and not re.search(r"[\n.;!?。！？；]", text[end:begin])  # noqa: RUF001


__all__ = [
    "Dataset",
    "Fact",
    "FormatName",
    "Item",
    "Rule",
    "Unusable",
    "UnusableError",
    "faulty",
    "located",
    "no_good",
    "only_place",
    "places",
]
