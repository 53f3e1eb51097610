# ruff: noqa: RUF001 - dashes and Chinese punctuation
"""The figures: right numbers, literal names, nothing fetched, readable at both widths."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import altair as alt
import numpy as np
import pytest

import hostile
from documents import ASKED, RIGHT, facts, flip_only, full, imported
from kvphase.report import draw, theme
from kvphase.report.charts import NARROW, WIDE, Canvas
from kvphase.report.facts import PageFacts, depth_cells, fold
from kvphase.report.figures import NAMES, figures
from kvphase.report.lines import clean
from kvphase.report.theme import DARK, LIGHT, PLAIN
from kvphase.report.words import shorten, words, wrap
from kvphase.types import Answers

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIELDS = {
    *("residue", "accuracy", "low", "high", "kind", "label", "end", "rung", "what", "depth"),
    *("deviation", "edge", "effect"),
}


def answers(position: NDArray[np.int64], correct: NDArray[np.int64]) -> Answers:
    """Screen answers at these positions."""
    n = len(position)
    number, unknown = np.zeros(n, np.int64), np.full(n, np.nan)
    return Answers(
        position=position,
        correct=correct.astype(np.int8),
        logprob=unknown,
        item=number,
        block=number,
        context=number,
        pad=number,
        arm=np.full(n, "screen"),
        text=np.full(n, " x"),
        margin=unknown,
        question=number,
        against=unknown,
    )


def parts(value: object) -> list[tuple[str, Any]]:
    """Every key of a nested structure with its value."""
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in [(k, v), *parts(v)]]
    if isinstance(value, list):
        return [pair for v in value for pair in parts(v)]
    return []


def test_every_figure_is_made_where_there_is_data() -> None:
    assert tuple(figures(words(full(), "en"), facts())) == NAMES
    assert tuple(figures(words(imported(), "en"), PageFacts())) == ("curve", "folded", "published")
    assert tuple(figures(words(flip_only(), "en"), PageFacts())) == (
        "curve",
        "lengths",
        "published",
    )


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_descriptions_are_valid_and_the_drawing_fits(width: int) -> None:
    said = words(full(), "zh")
    for figure in figures(said, facts()).values():
        spec = figure.spec(Canvas(LIGHT, width))
        alt.Chart.from_dict(spec, validate=True)
        root = ET.fromstring(draw.svg(figure, said, LIGHT, width))  # noqa: S314 - made here
        assert 0.9 * width <= float(root.attrib["width"]) <= 1.02 * width, figure.name
        assert root.attrib["role"] == "img"
        assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]


@pytest.mark.parametrize("name", hostile.NAMES)
def test_names_are_literal(name: str) -> None:
    said = words(hostile.document(name), "en")
    for figure in figures(said, hostile.page_facts(name)).values():
        spec = figure.spec(Canvas(LIGHT, WIDE))
        pairs = parts(spec)
        assert {v for k, v in pairs if k == "field"} <= FIELDS
        assert not {k for k, _ in pairs} & {"url", "href", "expr", "signal", "calculate", "test"}
        assert not {k for k, _ in pairs} & {"transform", "params", "labelExpr", "tooltip"}
        if figure.name not in ("curve", "confirm"):
            continue
        drawing = draw.svg(figure, said)
        root = ET.fromstring(drawing)  # noqa: S314 - made here
        heading = next(child.text for child in root if child.tag.endswith("title"))
        assert (heading or "").startswith(shorten(clean(name), 44)[:-1])
        assert not {c for c in drawing if not c.isprintable()} - {"\n"}


def test_curve_and_fold_show_the_counts() -> None:
    made = figures(words(full(), "en"), facts())
    assert [row[2] for row in made["curve"].table.rows] == [str(right) for right in RIGHT]
    assert made["curve"].table.rows[3][3] == "38.9%"
    assert made["curve"].table.rows[3][4] == "34.0–44.0%"
    folded = made["folded"].table.rows
    assert [(row[1], row[2]) for row in folded] == [
        (f"{2 * ASKED}", f"{RIGHT[r] + RIGHT[r + 4]}") for r in range(4)
    ]
    rows = made["curve"].spec(Canvas(LIGHT, WIDE))["datasets"].values()
    kinds = {row["residue"]: row["kind"] for some in rows for row in some if "kind" in row}
    assert kinds == {**dict.fromkeys(range(8), "other"), 1: "best", 3: "worst"}


def test_titles_say_model_design_and_thinking() -> None:
    for figure in figures(words(full(), "en"), facts()).values():
        text = " ".join((figure.titles.heading, *figure.titles.lines))
        assert "in-sequence design" in text
        assert "thinking" in text
        if figure.name != "published":
            assert "DeepSeek-V4-Flash-Base" in text
    toy = figures(words(flip_only(), "en"), PageFacts())
    for figure in toy.values():
        rows = " ".join(cell for row in figure.table.rows for cell in row)
        assert "DEMO: toy model, not yours" in " ".join(figure.titles.lines) + rows


def test_published_models_keep_base_and_post_trained_apart() -> None:
    table = figures(words(full(), "en"), facts())["published"].table
    rows = {row[0]: row for row in table.rows}
    assert next(iter(rows)) == "Yours: DeepSeek-V4-Flash-Base"
    base, post = rows["DeepSeek-V4-Flash-Base"], rows["DeepSeek-V4-Flash-0731"]
    assert (base[1], base[4]) == ("base (pre-trained only), stride 4", "40.2")
    assert (post[1], post[4]) == ("post-trained, stride 4", "19.1")
    reading = figures(words(full(), "en"), facts())["published"].titles.lines[0]
    assert "percentage points, best minus worst" in reading


def test_depth_and_fold_count_finished_answers() -> None:
    position = np.arange(100, 1060, 5)
    correct = np.where(position % 4 == 1, 1, 0)
    correct[0] = -1
    rows = answers(position=position, correct=correct)
    edges, cells = depth_cells(rows, 1200, 4)
    assert edges[0] == pytest.approx(105 / 1200)
    assert edges[-1] == pytest.approx(1056 / 1200)
    assert sum(cell.n for cell in cells) == len(position) - 1
    assert all(cell.correct == (cell.n if cell.residue == 1 else 0) for cell in cells)
    assert len(edges) == max(cell.depth for cell in cells) + 2
    folded = fold(rows, 4)
    assert [count.correct for count in folded] == [0, int((correct == 1).sum()), 0, 0]
    assert fold(rows, None) == ()
    assert depth_cells(rows, None, 4) == ((), ())


def test_packing_keeps_every_pixel() -> None:
    import vl_convert

    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"><circle r="15"/></svg>'
    plain = vl_convert.svg_to_png(svg)
    packed = draw.packed(plain)

    def pixels(picture: bytes) -> tuple[bytes, bytes]:
        chunks = list(draw._chunks(picture))
        data = b"".join(content for kind, content in chunks if kind == b"IDAT")
        return chunks[0][1], zlib.decompress(data)

    assert pixels(packed) == pixels(plain)
    assert packed.endswith(struct.pack(">I", 0) + b"IEND" + struct.pack(">I", zlib.crc32(b"IEND")))
    vl_convert.svg_to_png(svg)


def test_words_in_pictures_are_english_without_a_chinese_font(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(theme, "_drawn", lambda _: b"a box")
    theme.draws_chinese.cache_clear()
    try:
        assert theme.drawable("zh") == "en"
        assert theme.drawable("en") == "en"
    finally:
        theme.draws_chinese.cache_clear()


def test_wrapping_counts_columns_and_never_starts_a_line_with_closing_punctuation() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
    assert shorten("模型模型", 5) == "模型…"
    assert wrap("one two three", 8) == ["one two", "three"]
    assert wrap("one two three four five", 8, lines=2) == ["one two", "three f…"]
    assert wrap("一二三四。五", 8) == ["一二三", "四。五"]
    assert wrap("abcdefghijkl", 5, lines=2) == ["abcde", "fghi…"]
    assert wrap("", 5) == []


def test_dark_drawings_are_the_light_ones_in_other_colours() -> None:
    assert len({getattr(LIGHT, use) for use in PLAIN}) == len(PLAIN)
    said = words(full(model="#ffffff"), "en")
    for figure in figures(said, facts()).values():
        if not figure.blends:
            light = draw.svg(figure, said, LIGHT, NARROW)
            assert draw.darkened(light) == draw.svg(figure, said, DARK, NARROW)
