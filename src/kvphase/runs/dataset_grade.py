"""When an answer to a file's question counts as right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvphase.runs.shift_grade import matched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvphase.probes.formats import Fact
    from kvphase.types import Ask, Reply

_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w]|\.\d)")


def grader(facts: Sequence[Fact]) -> Callable[[Ask, Reply], int]:
    """A function that grades an ask's reply by the rule of its fact (``Ask.item``).

    1 right, 0 wrong, -1 cut.
    """

    def graded(ask: Ask, reply: Reply) -> int:
        return int(is_right(facts[ask.item], ask, reply)) if reply.finished else -1

    return graded


def is_right(fact: Fact, ask: Ask, reply: Reply) -> bool:
    """Whether a reply is right.

    ``contains`` and ``all``: each string is in it, whatever its case, and not inside a longer word
    or number. ``number``: the first number in it. ``line``: one of its lines is ``Name=Number``.
    The others are those of `kvphase.runs.shift_grade.matched`.
    """
    if fact.rule in ("contains", "all"):
        return all(holds(reply.text, answer) for answer in fact.answers)
    if fact.rule == "number":
        found = _NUMBER.search(reply.text)
        return found is not None and int(found[0]) == int(fact.answers[0])
    if fact.rule == "line":
        name, _, number = fact.answers[0].partition("=")
        return re.search(rf"(?im)^\W*{name}\s*[=:]\s*{number}\b", reply.text) is not None
    return matched(reply.text, ask, reply, fact.rule)


def holds(text: str, answer: str) -> bool:
    """Whether ``answer`` is in ``text``, whatever its case, as words of its own."""
    before = r"(?<!\w)" if answer[:1].isalnum() and answer.isascii() else ""
    after = r"(?!\w)" if answer[-1:].isalnum() and answer.isascii() else ""
    return re.search(before + re.escape(answer) + after, text, re.IGNORECASE) is not None


__all__ = ["grader", "holds", "is_right"]
