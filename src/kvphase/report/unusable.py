"""Entries of a file that could not be measured, by reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Message, message

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason and how often it was met."""

    why: Message
    """Of the first entry it was met at."""
    count: int
    line: int
    """Of that entry."""


def unusable(held: dict[str, Any]) -> list[Reason]:
    """Reasons of a run's manifest entry ``dataset``, the commonest first."""
    told = [(one["line"], message(one["key"], **one["values"])) for one in held["unusable"]]
    told += [(line, message("dataset.unplaced")) for line in held["unplaced"]]
    return by_reason(told)


def by_reason(told: Iterable[tuple[int, Message]]) -> list[Reason]:
    """Entries (line, why) that share a reason put together, the commonest first."""
    found: dict[str, Reason] = {}
    for line, why in sorted(told, key=lambda one: one[0]):
        first = found.get(why.key)
        found[why.key] = (
            Reason(why, 1, line)
            if first is None
            else Reason(first.why, first.count + 1, first.line)
        )
    return sorted(found.values(), key=lambda one: (-one.count, one.line))


__all__ = ["Reason", "by_reason", "unusable"]
