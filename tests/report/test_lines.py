# ruff: noqa: RUF001 - Chinese punctuation
from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kvphase.report.lines import Glyphs, console, left, right, show, wrapped


@given(st.text("ab ，。（）中文12.%", max_size=120), st.integers(20, 80))
def test_lines_fit_and_nothing_is_lost(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert line == line.rstrip()
        assert cell_len(line) <= width or max(map(cell_len, line.split())) > width - 4


def test_chinese_breaks_anywhere_but_before_closing_punctuation() -> None:
    assert wrapped("一二三四五六七八九十，后面", 20) == ["一二三四五六七八九", "十，后面"]
    assert wrapped("一二三四五六七八九（括号）", 20) == ["一二三四五六七八九", "（括号）"]
    assert wrapped("the residue 余数", 20) == ["the residue 余数"]


def test_a_long_word_stays_whole_and_further_lines_hang() -> None:
    path = "/a/very/long/path/to/a/file.csv"
    assert wrapped(f"see {path}", 20) == ["see", path]
    assert wrapped("12345 12345 12345 12345", 20, "   ") == ["12345 12345 12345", "   12345"]


def test_filling_counts_cells() -> None:
    assert left("余数", 6) == "余数  "
    assert right("余数", 6) == "  余数"
    assert left("too long", 3) == "too long"


@pytest.mark.parametrize(
    ("encoding", "full"),
    [
        ("utf-8", "█"),
        ("cp437", "█"),
        ("ascii", "#"),
        ("latin-1", "#"),
        ("gbk", "#"),
        ("cp936", "#"),
        ("GB18030", "#"),
        ("big5", "#"),
        (None, "#"),
        ("no such", "#"),
    ],
)
def test_bars_are_drawn_with_what_is_one_cell_wide(encoding: str | None, full: str) -> None:
    assert Glyphs.of(encoding).full == full


def test_nothing_printed_ends_in_a_space() -> None:
    stream = io.StringIO()
    show(console(stream), "word " * 60, "bold", lead=4)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert all(line == line.rstrip() and len(line) <= 80 for line in lines)
