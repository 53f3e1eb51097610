"""From a Vega-Lite description or an SVG to files; nothing is fetched while drawing."""

from __future__ import annotations

import re
import struct
import zlib
from html import escape
from typing import TYPE_CHECKING, Protocol

from kvphase.report.charts import NARROW, WIDE, Canvas
from kvphase.report.theme import DARK, LIGHT, PLAIN, drawn_font

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvphase.report.tables import Figure
    from kvphase.report.theme import Theme

VEGALITE = "6.4"
_OPENING = re.compile(r"<svg\b[^>]*>")
_TAG = re.compile(r"<[^<>]*>")
_UNUSED = re.compile(
    r' (?:class|role|aria-[a-z]+|pointer-events|stroke-miterlimit)="[^"<>]*"| opacity="1"'
)
"""Attributes that only scripts and screen readers of single marks use."""
_CLIP = re.compile(r"\bclip\d+")
"""Numbered on from drawing to drawing, which would make equal drawings differ."""
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_UNSEEN = re.compile(r'(<clipPath[^<>]*>)?<path d="[^"<>]*"(?: display="none")?/>')
"""Paths without a colour of their own: they have the root's, which is none. Clips are kept."""


class Spoken(Protocol):
    """What drawing must know of the words in a figure."""

    @property
    def wide(self) -> bool:
        """Whether they need a font with Chinese characters."""
        ...


def svg(figure: Figure, words: Spoken, theme: Theme = LIGHT, width: int = WIDE) -> str:
    """A figure as one SVG document, with a title and a description for screen readers."""
    import vl_convert

    font = drawn_font(chinese=words.wide)
    spec = figure.spec(Canvas(theme, width, font))
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE, allowed_base_urls=[])
    drawn = _shorter(drawn, font)
    opening = _OPENING.match(drawn)
    if opening is None:
        raise RuntimeError("the chart was not drawn as SVG")
    title = f"<title>{escape(figure.titles.heading)}</title>"
    about = f'{opening.group()[:-1]} role="img" font-family="{font}">{title}'
    return f"{about}<desc>{escape(figure.alt)}</desc>{drawn[opening.end() :]}"


def variants(figure: Figure, words: Spoken) -> dict[str, str]:
    """The figure as SVG in both themes and widths: ``light``, ``dark``, ``light-narrow``, ..."""
    drawn: dict[str, str] = {}
    for width, suffix in ((WIDE, ""), (NARROW, "-narrow")):
        light = svg(figure, words, LIGHT, width)
        dark = svg(figure, words, DARK, width) if figure.blends else darkened(light)
        drawn |= {f"light{suffix}": light, f"dark{suffix}": dark}
    return drawn


def darkened(light: str) -> str:
    """A drawing in the light theme in the dark one's colours; drawing it again takes longer."""
    colours = {getattr(LIGHT, use): getattr(DARK, use) for use in PLAIN}

    def swap(tag: re.Match[str]) -> str:
        return _COLOUR.sub(lambda colour: colours.get(colour.group(), colour.group()), tag.group())

    return _TAG.sub(swap, light)


def png(drawing: str, scale: float = 2) -> bytes:
    """An SVG document as PNG, ``scale`` pixels to each of its own."""
    import vl_convert

    return packed(vl_convert.svg_to_png(drawing, scale=scale))


def packed(picture: bytes) -> bytes:
    """The same PNG compressed well; the drawing library is in a hurry."""
    chunks = list(_chunks(picture))
    pixels = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    kept = [(kind, data) for kind, data in chunks if kind not in (b"IDAT", b"IEND")]
    kept += [(b"IDAT", zlib.compress(pixels, 6)), (b"IEND", b"")]
    return picture[:8] + b"".join(_chunk(kind, data) for kind, data in kept)


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(picture):
        size, kind = struct.unpack(">I4s", picture[at : at + 8])
        yield kind, picture[at + 8 : at + 8 + size]
        at += size + 12


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _shorter(drawn: str, font: str) -> str:
    """The same drawing without what nobody sees; the one font is named once, at the root.

    Only tags are touched, never text: values in tags are the drawing library's own.
    """
    named = f' font-family="{font}"'
    clips: dict[str, str] = {}

    def tidy(tag: re.Match[str]) -> str:
        kept = _UNUSED.sub("", tag.group().replace(named, ""))
        kept = _CLIP.sub(lambda clip: clips.setdefault(clip.group(), f"clip{len(clips)}"), kept)
        return _LONG.sub(lambda number: f"{float(number.group()):.2f}", kept)

    return _UNSEEN.sub(lambda path: path.group() if path[1] else "", _TAG.sub(tidy, drawn))
