"""Colours and fonts of the page, its figures and the card; one light and one dark theme.

The two data colours are the vermilion and blue of Okabe and Ito (2008), which stay apart for every
common kind of colour blindness; figures never rest on colour alone (shape and text say the same).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from kvphase.catalogue import Language

Shade = Literal["light", "dark"]
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, "
    "'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'Noto Sans SC', 'Source Han Sans SC', "
    "'WenQuanYi Micro Hei', sans-serif"
)
_LATIN = ("Liberation Sans", "Arial", "Roboto")
_CHINESE = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "PingFang SC"),
    *("Microsoft YaHei", "WenQuanYi Micro Hei"),
)


def drawn_font(*, chinese: bool) -> str:
    """The font families of pictures: Latin fonts first, or fonts with Chinese characters.

    What draws PNG files takes the first family it finds and, for a character which that one lacks,
    any font at all; so text with Chinese in it must name a Chinese font first.
    """
    names = (*_CHINESE, *_LATIN) if chinese else (*_LATIN, *_CHINESE)
    return ", ".join([*(f"'{name}'" for name in names), "sans-serif"])


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by their use, as CSS hexadecimal."""

    shade: Shade
    panel: str
    """Behind a figure."""
    ink: str
    muted: str
    grid: str
    data: str
    worst: str
    best: str
    soft: str
    """Data that stands behind other data."""
    heat: tuple[str, ...]
    """Low to high accuracy; lightness alone tells the order."""


LIGHT = Theme(
    shade="light",
    panel="#ffffff",
    ink="#17202c",
    muted="#566170",
    grid="#e3e7ec",
    data="#4a5d75",
    worst="#c04c00",
    best="#0067a5",
    soft="#9aa8b8",
    heat=("#7a2d00", "#c4630f", "#eab96b", "#f4ecd8", "#a9cbe0", "#3b86b8", "#004a78"),
)
DARK = Theme(
    shade="dark",
    panel="#1a2029",
    ink="#e8edf3",
    muted="#a7b2c0",
    grid="#303946",
    data="#b4c3d6",
    worst="#ff8a4a",
    best="#5cb6f2",
    soft="#6d7c8f",
    heat=("#ff9d5c", "#c96f2c", "#7d5330", "#3b4048", "#34617f", "#4693c4", "#8fd0fa"),
)
PLAIN = ("panel", "ink", "muted", "grid", "data", "worst", "best", "soft")
"""Uses whose colours appear in drawings as they are."""


def config(theme: Theme, font: str) -> dict[str, Any]:
    """The Vega-Lite configuration of a theme."""
    return {
        "background": theme.panel,
        "padding": 14,
        "font": font,
        "aria": False,  # the page and the file describe the figure; marks need no labels
        "view": {"stroke": None},
        "axis": {
            "labelColor": theme.muted,
            "titleColor": theme.muted,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "gridColor": theme.grid,
            "domain": False,
            "ticks": False,
            "labelPadding": 6,
            "titlePadding": 8,
        },
        "title": {
            "anchor": "start",
            "frame": "bounds",
            "color": theme.ink,
            "fontSize": 15,
            "fontWeight": 600,
            "lineHeight": 20,
            "subtitleColor": theme.muted,
            "subtitleFontSize": 12,
            "subtitleLineHeight": 16,
            "subtitlePadding": 5,
            "offset": 14,
        },
        "legend": {
            "labelColor": theme.muted,
            "titleColor": theme.muted,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "symbolStrokeWidth": 2,
            "labelLimit": 220,
        },
    }


@cache
def draws_chinese() -> bool:
    """Whether some installed font has Chinese characters; pictures need one, browsers bring theirs.

    Two characters are drawn: without a font both come out as the same empty box.
    """
    return _drawn("\N{CJK UNIFIED IDEOGRAPH-76F8}") != _drawn("\N{CJK UNIFIED IDEOGRAPH-4F4D}")


def drawable(language: Language) -> Language:
    """The language that fixed texts of a picture are drawn in here: English without a font."""
    return language if language == "en" or draws_chinese() else "en"


def _drawn(character: str) -> bytes:
    import vl_convert

    font = drawn_font(chinese=True)
    return vl_convert.svg_to_png(
        '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">'
        f'<text x="4" y="30" font-family="{font}" font-size="24">{character}</text></svg>'
    )
