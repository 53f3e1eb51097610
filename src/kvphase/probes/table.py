"""A file of records as text cells: CSV with any usual delimiter, or one JSON object a line."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

DELIMITERS = ",;\t|"
SHOWN = 60
"""Characters of a name or a cell that an error repeats."""
PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
ZIP = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a file and where it stands."""

    file: str
    number: int
    """Of the record's first line, from 1."""
    cells: Mapping[str, str]

    def cell(self, column: str | None) -> str:
        """The cell of a column without surrounding space; empty where the record is short."""
        return self.cells.get(column or "", "").strip()

    def fault(self, key: str, **values: object) -> UsageError:
        """An error about this record; ``key`` is of the catalogue's errors."""
        return UsageError(message(f"error.{key}", file=self.file, line=self.number, **values))


def read_table(path: Path) -> tuple[Sequence[str], list[Line]]:
    """Column names in order, and the records.

    Args:
        path: Text in UTF-8, or in UTF-16 with a byte order mark. A byte order mark, any line ends
            and blank lines will do.

    Raises:
        UsageError: the file cannot be read, or what is wrong in it, with the line's number.
    """
    name, text = shown(path), _text(path)
    if text.lstrip().startswith("{"):
        lines = list(_jsonl(name, text))
        return list(dict.fromkeys(column for line in lines for column in line.cells)), lines
    return _csv(name, text)


def shown(name: object) -> str:
    """A name or cell as an error may repeat it: printable, and not too long."""
    text = str(name)
    text = text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def listed(columns: Sequence[str]) -> str:
    """Column names as an error may repeat them."""
    names = ", ".join(shown(column) for column in columns[:12])
    return names + (", ..." if len(columns) > 12 else "")


def quoted(name: object) -> str:
    """A name or cell in quotation marks, as `shown`."""
    return f"'{shown(name)}'"


def _text(path: Path) -> str:
    """The file's text."""
    name = shown(path)
    text = _decoded(name, _bytes(path))
    if "\0" in text:
        raise UsageError(message("error.file-binary", file=name))
    if not text.strip():
        raise UsageError(message("error.file-empty", file=name))
    return text


def _bytes(path: Path) -> bytes:
    name = shown(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(message("error.file-missing", file=name)) from None
    except IsADirectoryError:
        raise UsageError(message("error.file-folder", file=name)) from None
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise UsageError(message("error.file-unreadable", file=name, why=why)) from None


def _decoded(name: str, raw: bytes) -> str:
    """``raw`` as text; what is packed or encoded otherwise is refused by name."""
    for mark, kind in PACKED.items():
        if raw.startswith(mark):
            raise UsageError(message("error.file-compressed", file=name, kind=kind))
    if raw.startswith(ZIP):
        raise UsageError(message("error.file-zip", file=name))
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(message("error.file-encoding", file=name)) from None


def _jsonl(name: str, text: str) -> Iterator[Line]:
    # Not splitlines: JSON strings may hold U+2028 and its like.
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_once)
        except _TwiceError as twice:
            values = {"file": name, "line": number, "column": quoted(twice)}
            raise UsageError(message("error.file-column-twice", **values)) from None
        except (ValueError, RecursionError):
            raise UsageError(message("error.file-json", file=name, line=number)) from None
        if not isinstance(record, dict):
            raise UsageError(message("error.file-json", file=name, line=number))
        yield Line(name, number, {column: _plain(value) for column, value in record.items()})


class _TwiceError(Exception):
    """A JSON object names a field twice."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object whose names are all different."""
    record: dict[str, object] = {}
    for name, value in pairs:
        if name in record:
            raise _TwiceError(name)
        record[name] = value
    return record


def _plain(value: object) -> str:
    """A JSON value the way a CSV cell would spell it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _csv(name: str, text: str) -> tuple[Sequence[str], list[Line]]:
    columns: list[str] = []
    lines: list[Line] = []
    for number, cells in _records(name, text):
        if not any(cell.strip() for cell in cells):
            continue
        if not columns:
            columns = _header(name, number, cells)
            continue
        # Short rows are allowed here: the missing cell is reported by its column's name.
        line = Line(name, number, dict(zip(columns, cells, strict=False)))
        if any(cell.strip() for cell in cells[len(columns) :]):
            raise line.fault("file-cells", found=len(cells), expected=len(columns))
        lines.append(line)
    return columns, lines


def _records(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """First line and cells of each record."""
    head = text.lstrip().splitlines()[0]
    delimiter = max(DELIMITERS, key=head.count)
    stream = io.StringIO(text, newline="")
    reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as fault:
            at = {"file": name, "line": number}
            # A quotation mark that is never closed swallows the file or the longest cell allowed.
            if "end of data" in str(fault) or "field limit" in str(fault):
                raise UsageError(message("error.file-quote", **at)) from None
            raise UsageError(message("error.file-csv", problem=fault, **at)) from None


def _header(name: str, number: int, cells: Sequence[str]) -> list[str]:
    """Column names; blank ones may repeat."""
    columns = [cell.strip() for cell in cells]
    for column in columns:
        if column and columns.count(column) > 1:
            values = {"file": name, "line": number, "column": quoted(column)}
            raise UsageError(message("error.file-column-twice", **values))
    return columns
