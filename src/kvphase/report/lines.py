"""Lines for a terminal: wrapped and aligned by cells, since a Chinese character takes two."""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from typing import TextIO

WIDTH = 80
_NARROWEST = 20
_CLOSING = ("Pe", "Pf", "Po")
_OPENING = ("Ps", "Pi")
_DOUBLE_BYTE = ("gb", "big5", "hz", "cp93", "cp94", "cp95", "shift_jis", "euc_", "johab")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters that the output's encoding can carry."""

    full: str
    part: str
    low: str
    high: str
    dot: str

    @classmethod
    def of(cls, encoding: str | None) -> Glyphs:
        """Block characters where ``encoding`` has them, one cell wide each; ASCII elsewhere.

        Consoles with an East Asian double-byte encoding draw block characters two cells wide,
        which would push every bar out of line.
        """
        fancy = cls("█", "─", "├", "┤", "·")
        plain = cls("#", "-", "|", "|", "-")
        try:
            name = codecs.lookup(encoding or "ascii").name
            "".join((fancy.full, fancy.part, fancy.low, fancy.high, fancy.dot)).encode(name)
        except (UnicodeEncodeError, LookupError):
            return plain
        return plain if name.startswith(_DOUBLE_BYTE) else fancy


def console(stream: TextIO) -> Console:
    """A console on ``stream``, 80 columns where it is no terminal; markup is never interpreted."""
    plain = Console(file=stream, markup=False, highlight=False, emoji=False)
    return (
        plain
        if plain.is_terminal
        else Console(file=stream, markup=False, highlight=False, emoji=False, width=WIDTH)
    )


def show(out: Console, text: str, style: str = "", *, lead: int = 0, hang: str = "") -> None:
    """Print ``text`` wrapped to the console, no line ending in a space.

    Args:
        out: Where to.
        text: One paragraph.
        style: Of all of it, or of its first ``lead`` characters.
        lead: Characters that are styled; 0 for all.
        hang: What every line but the first starts with.
    """
    for number, line in enumerate(wrapped(text, out.width, hang)):
        shown = Text(line)
        if not lead:
            shown.stylize(style)
        elif number == 0:
            shown.stylize(style, 0, lead)
        out.print(shown, soft_wrap=True)


def wrapped(text: str, width: int, hang: str = "") -> list[str]:
    """``text`` in lines of at most ``width`` cells.

    Lines break at spaces and beside wide characters, but never before closing or after opening
    punctuation. A word that is wider than a line stays whole: it may be a path to be copied.
    """
    width = max(_NARROWEST, width)
    lines: list[str] = []
    line = ""
    for gap, piece in _pieces(text):
        if line.strip() and cell_len(line + gap + piece) > width:
            lines.append(line.rstrip())
            line, gap = hang, ""
        line += gap + piece
    return [*lines, line.rstrip()]


def _pieces(text: str) -> list[tuple[str, str]]:
    """What must not be parted, each with the space before it."""
    pieces: list[tuple[str, str]] = []
    for gap, word in re.findall(r"(\s*)(\S+)", text):
        start = 0
        for end in _breaks(word):
            pieces.append((gap if start == 0 else "", word[start:end]))
            start = end
    return pieces


def _breaks(word: str) -> list[int]:
    """Indices at which a line may end inside ``word``, its end included."""
    inside = [
        end
        for end, (before, after) in enumerate(pairwise(word), start=1)
        if 2 in (cell_len(before), cell_len(after))
        and unicodedata.category(after) not in _CLOSING
        and unicodedata.category(before) not in _OPENING
    ]
    return [*inside, len(word)]


def left(text: str, width: int) -> str:
    """``text`` filled with spaces on its right to ``width`` cells."""
    return text + " " * max(0, width - cell_len(text))


def right(text: str, width: int) -> str:
    """``text`` filled with spaces on its left to ``width`` cells."""
    return " " * max(0, width - cell_len(text)) + text


def clean(text: str) -> str:
    """``text`` without control characters: a model's words must not drive the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
