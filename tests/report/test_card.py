# ruff: noqa: RUF001 - Chinese punctuation
"""The card: its size, its words, and names that do not fit or do not behave."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

import hostile
from documents import flip_only, full, imported, points
from kvphase.catalogue import LANGUAGES, Language
from kvphase.report import card as cards
from kvphase.report.card import INNER, card, drawing
from kvphase.report.lines import clean
from kvphase.report.words import columns

if TYPE_CHECKING:
    from kvphase.schema import VerdictFile

SVG = "{http://www.w3.org/2000/svg}"


def texts(document: VerdictFile, language: Language = "en") -> list[ET.Element]:
    root = ET.fromstring(drawing(document, language))  # noqa: S314 - made here
    assert {e.tag for e in root.iter()} <= {f"{SVG}{t}" for t in ("svg", "rect", "text", "line")}
    return list(root.iter(f"{SVG}text"))


def said(document: VerdictFile, language: Language = "en") -> list[str]:
    return [element.text or "" for element in texts(document, language)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_picture_of_sixteen_to_nine(language: Language) -> None:
    picture = card(full(), language)
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (1600, 900)
    assert len(picture) < 400_000


def test_it_says_what_was_measured_and_found() -> None:
    lines = said(full())
    text = " ".join(lines)
    assert lines[0] == "DeepSeek-V4-Flash-Base"
    for part in (
        *("Q4_K_M", "llama.cpp b7312", "8,192 tokens", "no thinking", "2,880 answers"),
        *(
            "phase-sensitive",
            "modulo 4.",
            "39.1",
            "percentage points",
            "raw 41.4; chance alone gives 7.4",
        ),
        *("▲ best 80.3% at residue 1", "▼ worst 38.9% at residue 3", "4f1d9a6be1c07733"),
        *("mean 62.9%", "cross-fitted, 95% 35.2 to 42.9", "not an average loss"),
    ):
        assert part in text, part
    assert "DEMO" not in text
    assert "DEMO: toy model, not yours" in said(flip_only())
    assert "演示：玩具模型，不是你的模型" in said(flip_only(), "zh")
    assert "相位敏感" in said(full(), "zh")


@pytest.mark.parametrize("name", hostile.NAMES)
def test_names_are_text_and_fit(name: str) -> None:
    document = hostile.document(name)
    for element in texts(document):
        line, size = element.text or "", float(element.attrib["font-size"])
        assert columns(line) * size * 0.5 <= INNER + 1, line
        assert all(c.isprintable() for c in line)
    first = said(document)[0]
    assert first.rstrip("…") == clean(name)[: len(first.rstrip("…"))]
    assert card(document, "en").startswith(b"\x89PNG")


@pytest.mark.parametrize("verdict", ["aperiodic", "saturated", "not-detected", "unreliable"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_verdict_has_its_sentence(verdict: str, language: Language) -> None:
    lines = said(full(verdict=verdict), language)
    assert not [line for line in lines if "{" in line or "None" in line]


def test_many_residues_and_no_answers() -> None:
    many = [{**point, "residue": 8 * i + point["residue"]} for i in range(8) for point in points()]
    assert len(said(full(curve=many, modulus=64))) < 40
    assert said(imported(curve=points(n=0), worst=None, best=None))[0] == "results.csv"


def test_fixed_words_are_english_without_a_chinese_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "drawable", lambda _: "en")
    assert card(full(), "zh") == card(full(), "en")


def test_best_and_worst_are_coloured_only_where_something_was_found() -> None:
    def colours(document: VerdictFile) -> set[str]:
        root = ET.fromstring(drawing(document, "en"))  # noqa: S314 - made here
        return {element.attrib.get("fill", "") for element in root.iter()}

    assert {"#c04c00", "#0067a5"} <= colours(full())
    assert not {"#c04c00", "#0067a5"} & colours(full(verdict="inconclusive"))
