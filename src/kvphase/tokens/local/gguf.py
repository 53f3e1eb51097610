"""What a GGUF file says of its model and its tokenizer; its weights are never read.

The format (version 2 and 3, little-endian): ``GGUF``, version, number of tensors, number of
entries; then each entry as a name, a type and a value. Source: llama.cpp's description of GGUF.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kvphase.catalogue import message
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["read_metadata"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""The `struct` letter of each type of number."""
STRING, ARRAY = 8, 9
MOST_ENTRIES = 100_000
DEEPEST = 4
"""Arrays in arrays go no deeper."""


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The entries of a GGUF file's header; arrays are lists.

    Raises:
        UsageError: there is no such file, it is no GGUF of a known version, or it is damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(message("tokenizer.no-file", name=path.name))
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).entries()
    except (struct.error, UnicodeDecodeError, _Damaged) as error:
        raise UsageError(message("tokenizer.bad-gguf", name=path.name)) from error


class _Damaged(Exception):
    """A length or a type that cannot be."""


class _Reader:
    """Reads from the front; every length is checked against what the file can hold."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def entries(self) -> dict[str, Any]:
        if self._bytes(4) != MAGIC or self._number("I") not in VERSIONS:
            raise _Damaged
        self._number("Q")  # tensors
        count = self._number("Q")
        if count > MOST_ENTRIES:
            raise _Damaged
        return dict(self._entry() for _ in range(count))

    def _entry(self) -> tuple[str, Any]:
        name = self._string()
        return name, self._value(self._number("I"), 0)

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 - whatever the file holds
        if kind == ARRAY and depth < DEEPEST:
            return self._array(depth)
        return self._reader(kind)()

    def _array(self, depth: int) -> list[Any]:
        kind, count = self._number("I"), self._number("Q")
        if count > self._left:
            raise _Damaged
        if kind in NUMBERS:
            form = f"<{count}{NUMBERS[kind]}"
            return list(struct.unpack(form, self._bytes(struct.calcsize(form))))
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _reader(self, kind: int) -> Callable[[], Any]:
        if kind == STRING:
            return self._string
        if kind not in NUMBERS:
            raise _Damaged
        return lambda: self._number(NUMBERS[kind])

    def _string(self) -> str:
        return self._bytes(self._number("Q")).decode()

    def _number(self, letter: str) -> Any:  # noqa: ANN401 - of the type that the letter says
        return struct.unpack(f"<{letter}", self._bytes(struct.calcsize(f"<{letter}")))[0]

    def _bytes(self, size: int) -> bytes:
        if size > self._left:
            raise _Damaged
        self._left -= size
        return self._file.read(size)
