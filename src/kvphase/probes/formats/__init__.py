"""Files of test prompts that people already have, recognised by their content, not by their name.

A format is two functions: one that knows a record (or a text), one that makes an `Item` of it. To
add one, write both and put them into ``RECORDS`` or ``TEXTS``; the order decides where several
would fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.formats.chats import chat, is_chat
from kvphase.probes.formats.items import (
    Dataset,
    Fact,
    FormatName,
    Item,
    Rule,
    Unusable,
    UnusableError,
    faulty,
)
from kvphase.probes.formats.reading import Record, decoded, is_json, read_bytes, records
from kvphase.probes.formats.tables import (
    is_cell,
    is_json_kv,
    is_kv,
    is_needle,
    is_ruler,
    json_kv,
    kv,
    needle,
    ruler,
)
from kvphase.probes.formats.texts import is_passkey, is_story, passkey, story
from kvphase.probes.table import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDS: tuple[
    tuple[FormatName, Callable[[dict[str, Any]], bool], Callable[[int, dict[str, Any]], Item]], ...
] = (
    ("kv", is_kv, kv),
    ("chat", is_chat, chat),
    ("needle", is_needle, needle),
    ("ruler", is_ruler, ruler),
    ("json-kv", is_json_kv, json_kv),
)
TEXTS: tuple[tuple[FormatName, Callable[[str], bool], Callable[[str], Item]], ...] = (
    ("story", is_story, story),
    ("passkey", is_passkey, passkey),
)
KEYS = 8
"""Entries of a record that an error names."""


def read_dataset(path: Path) -> Dataset:
    """Read a file of test prompts.

    Args:
        path: JSON, one JSON object a line, or a text; UTF-8, plain or packed by gzip.

    Raises:
        UsageError: it cannot be read, is of no known format, changes its format half way, or holds
            no entry that can be measured; file and line are named.
    """
    name = shown(path.name)
    text = decoded(read_bytes(path), name)
    return _of_records(records(text, name), name) if is_json(text) else _of_text(text, name)


def _of_text(text: str, name: str) -> Dataset:
    for kind, fits, made in TEXTS:
        if fits(text):
            try:
                return Dataset(name, kind, (made(text),))
            except UnusableError as bad:
                raise _nothing(name, [Unusable(1, bad.why)]) from None
    raise UsageError(message("dataset.unknown-text", file=name))


def _of_records(found: list[Record], name: str) -> Dataset:
    found = _inner(found)
    if not found:
        raise UsageError(message("dataset.empty", file=name))
    _must_be_objects(found, name)
    kind, fits, made = _known(found[0], name)
    items: list[Item] = []
    bad: list[Unusable] = []
    for record in found:
        if not fits(record.value):
            raise faulty(name, record.line, "changes", format=message(f"dataset.format.{kind}"))
        try:
            items.append(made(record.line, record.value))
        except UnusableError as fault:
            bad.append(Unusable(record.line, fault.why))
    if not items:
        raise _nothing(name, bad)
    return Dataset(name, kind, tuple(items), tuple(bad))


def _inner(found: list[Record]) -> list[Record]:
    """The entries of a document that wraps its list; messages alone are one transcript."""
    values = [record.value for record in found]
    if values and all(
        isinstance(one, dict) and {"role", "content"} <= one.keys() for one in values
    ):
        return [Record(1, {"messages": values})]
    if len(values) == 1 and isinstance(values[0], dict):
        for name in ("data", "examples", "tasks"):
            inner = values[0].get(name)
            if isinstance(inner, list):
                return [Record(number, value) for number, value in enumerate(inner, 1)]
    return found


def _must_be_objects(found: list[Record], name: str) -> None:
    odd = next((record for record in found if not isinstance(record.value, dict)), None)
    if odd is not None:
        raise faulty(name, odd.line, "no-object")


def _known(
    record: Record, name: str
) -> tuple[FormatName, Callable[[dict[str, Any]], bool], Callable[[int, dict[str, Any]], Item]]:
    """The format of a file by its first record."""
    for known in RECORDS:
        if known[1](record.value):
            return known
    if is_cell(record.value):
        raise UsageError(message("dataset.only-results", file=name))
    if "samples" in record.value or "filtered_resps" in record.value:
        raise UsageError(message("dataset.only-analysed", file=name))
    keys = ", ".join(shown(key) for key in list(record.value)[:KEYS])
    raise faulty(name, record.line, "unknown", keys=keys or "-")


def _nothing(name: str, bad: list[Unusable]) -> UsageError:
    """No entry can be measured: the first one's reason stands for all."""
    first = bad[0]
    return faulty(name, first.line, "nothing", count=len(bad), why=first.why)


__all__ = ["Dataset", "Fact", "Item", "Rule", "Unusable", "read_dataset"]
