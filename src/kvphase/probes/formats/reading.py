"""A file of prompts as text or as records: plain or gzip, UTF-8, JSON or one object a line."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.formats.items import faulty
from kvphase.probes.table import PACKED, ZIP, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_BYTES = 512 * 2**20
"""Of a file, and of what a packed one holds: a small file must not fill the memory."""
_GZIP = b"\x1f\x8b"
_LINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON value of a file."""

    line: int
    """It begins at, from 1; its number in the list where the file is one."""
    value: Any


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The file's content; what gzip packed is unpacked.

    Raises:
        UsageError: it cannot be read, is too large, or is packed otherwise or badly.
    """
    name = shown(path.name)
    raw = _read(path, name, most)
    if raw.startswith(_GZIP):
        return _unpacked(raw, name, most)
    marks = {**PACKED, ZIP: "zip"}
    for mark, kind in marks.items():
        if raw.startswith(mark):
            raise UsageError(message("dataset.packed", file=name, kind=kind))
    return raw


def _read(path: Path, name: str, most: int) -> bytes:
    try:
        if path.is_dir():
            raise UsageError(message("error.file-folder", file=name))
        if path.stat().st_size > most:
            raise UsageError(message("dataset.too-big", file=name, mb=most // 2**20))
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(message("error.file-missing", file=name)) from None
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise UsageError(message("error.file-unreadable", file=name, why=why)) from None


def _unpacked(raw: bytes, name: str, most: int) -> bytes:
    """Of all members of a gzip file, as much as may be."""
    parts: list[bytes] = []
    size, rest = 0, raw
    try:
        while rest:
            member = zlib.decompressobj(wbits=31)
            part = member.decompress(rest, most + 1 - size)
            size += len(part)
            parts.append(part)
            if size > most:
                raise UsageError(message("dataset.too-big", file=name, mb=most // 2**20))
            if not member.eof:
                raise UsageError(message("dataset.bad-gzip", file=name))
            rest = member.unused_data.lstrip(b"\0")
    except zlib.error:
        raise UsageError(message("dataset.bad-gzip", file=name)) from None
    return b"".join(parts)


def decoded(raw: bytes, name: str) -> str:
    """UTF-8 with or without a byte-order mark.

    Raises:
        UsageError: it is not UTF-8 (the line is named), or it is empty.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw[: fault.start].count(b"\n") + 1
        raise faulty(name, line, "not-utf8") from None
    if not text.strip():
        raise UsageError(message("dataset.empty", file=name))
    return text


def is_json(text: str) -> bool:
    """Whether the text begins like JSON."""
    return text.lstrip()[:1] in ("{", "[")


def records(text: str, name: str) -> list[Record]:
    """The JSON values of a file: entries of a list, one document, or one a line.

    Raises:
        UsageError: JSON that cannot be read, with its line.
    """
    first = text.lstrip().splitlines()[0]
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return _document(text, name)
    found = list(_lines(text, name))
    whole = found[0].value
    if len(found) == 1 and isinstance(whole, list):
        return [Record(number, value) for number, value in enumerate(whole, 1)]
    return found


def _document(text: str, name: str) -> list[Record]:
    """One JSON value over several lines, whose first line alone is none."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as fault:
        # Lines that each begin an object are JSONL with a broken first line.
        line = 1 if _looks_like_lines(text) else fault.lineno
        raise faulty(name, line, "bad-json", why=fault.msg) from None
    except RecursionError:
        raise faulty(name, 1, "bad-json", why="nested too deeply") from None
    if isinstance(whole, list):
        return [Record(number, value) for number, value in enumerate(whole, 1)]
    return [Record(1, whole)]


def _looks_like_lines(text: str) -> bool:
    lines = [line for line in _LINE.split(text) if line.strip()]
    return len(lines) > 1 and all(line.startswith("{") for line in lines)


def _lines(text: str, name: str) -> Iterator[Record]:
    # Not splitlines: JSON strings may hold U+2028 and its like.
    for number, line in enumerate(_LINE.split(text), start=1):
        if not line.strip():
            continue
        try:
            yield Record(number, json.loads(line))
        except json.JSONDecodeError as fault:
            raise faulty(name, number, "bad-json", why=fault.msg) from None
        except RecursionError:
            raise faulty(name, number, "bad-json", why="nested too deeply") from None


__all__ = ["MOST_BYTES", "Record", "decoded", "is_json", "read_bytes", "records"]
