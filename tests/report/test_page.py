# ruff: noqa: RUF001 - Chinese punctuation
"""The page: safe whatever a model calls itself, in both languages, whole when parts lack."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

import hostile
from documents import facts, flip_only, full, imported
from kvphase.catalogue import LANGUAGES, Language, message
from kvphase.report import draw
from kvphase.report.facts import PageFacts
from kvphase.report.lines import clean
from kvphase.report.page import page

TAGS = {
    *("html", "head", "meta", "title", "link", "style", "body", "a", "header", "p", "strong", "h1"),
    *("bdi", "div", "nav", "ul", "li", "main", "section", "h2", "span", "dl", "dt", "dd", "small"),
    *("h3", "figure", "picture", "source", "img", "figcaption", "details", "summary", "table"),
    *("caption", "thead", "tbody", "tr", "th", "td", "pre", "code", "footer"),
}
VOID = {"meta", "link", "source", "img"}
WITHOUT = {
    "full": (full(), facts()),
    "imported": (imported(), PageFacts()),
    "flip": (flip_only(), PageFacts(run="a.kvphase")),
    "unconfirmed": (full(confirm=None, skipped=[], looks=[], notes=[]), PageFacts()),
    "bare": (full(confirm=None, balance=None, best=None, worst=None, mde_pp=None), PageFacts()),
    "saturated": (full(verdict="saturated", period=None, p_value=None, confirm=None), facts()),
}


class Reader(HTMLParser):
    """Collects elements, their attributes, and the text outside the style sheet."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """An element ends; it must be the one last opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        if self.open and self.open[-1] != "style":
            self.text += data

    def attributes(self, name: str) -> list[str]:
        """Values of this attribute, wherever it stands."""
        return [attrs[name] or "" for _, attrs in self.elements if name in attrs]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that cost nothing, for tests of everything else."""
    monkeypatch.setattr(draw, "svg", lambda *_: '<svg xmlns="http://www.w3.org/2000/svg"/>')
    monkeypatch.setattr(draw, "png", lambda *_: b"")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", hostile.NAMES)
def test_names_are_text_wherever_they_stand(name: str) -> None:
    html = page(hostile.document(name), hostile.page_facts(name), "en")
    reader = Reader(html)
    assert not reader.open
    assert {tag for tag, _ in reader.elements} <= TAGS
    assert not [attr for _, attrs in reader.elements for attr in attrs if attr.startswith("on")]
    for link in ("src", "href", "srcset"):
        for value in reader.attributes(link):
            assert value.startswith(("data:image/", "data:,", "#")), value
    assert not {c for c in html if not c.isprintable() and c != "\n"}
    assert clean(name) in reader.text
    assert "5439" not in reader.text
    assert not reader.attributes("style")


def test_pictures_of_hostile_names_are_pictures_only() -> None:
    name = hostile.NAMES[3]
    html = page(hostile.document(name), hostile.page_facts(name), "en")
    reader = Reader(html)
    urls = {
        u for key in ("src", "srcset", "href") for u in reader.attributes(key) if "svg+xml" in u
    }
    assert len(urls) == 28
    for url in urls:
        drawing = b64decode(url.removeprefix("data:image/svg+xml;base64,")).decode()
        root = ET.fromstring(drawing)  # noqa: S314 - made here
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {
            *("svg", "title", "desc", "g", "path", "text", "tspan", "line", "rect", "defs"),
            *("clipPath", "linearGradient", "stop"),
        }
        attributes = {attribute for element in root.iter() for attribute in element.attrib}
        assert not [a for a in attributes if a.startswith("on") or "href" in a]
    pngs = [u for u in reader.attributes("href") if "image/png" in u]
    assert len(pngs) == 7
    for url in pngs:
        assert b64decode(url.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("which", WITHOUT)
def test_every_part_that_lacks_is_said_to_lack(which: str, language: Language) -> None:
    document, counted = WITHOUT[which]
    reader = Reader(page(document, counted, language))
    assert "None" not in reader.text
    assert "{" not in reader.text
    sections = {
        attrs["id"]
        for tag, attrs in reader.elements
        if tag == "section" and attrs["id"] != "result"
    }
    anchors = {href.removeprefix("#") for href in reader.attributes("href") if href[0] == "#"}
    assert anchors == sections | {"result"}
    ids = reader.attributes("id")
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("which", WITHOUT)
def test_the_page_is_built_for_everyone(which: str) -> None:
    document, counted = WITHOUT[which]
    reader = Reader(page(document, counted, "zh"))
    tags = [tag for tag, _ in reader.elements]
    assert [tags.count(tag) for tag in ("h1", "main", "nav", "header", "footer")] == [1] * 5
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    assert next(a for t, a in reader.elements if t == "html") == {"lang": "zh-Hans"}
    assert all(attrs["scope"] in ("col", "row") for tag, attrs in reader.elements if tag == "th")
    assert all(attrs["alt"] for tag, attrs in reader.elements if tag == "img")
    assert tags.count("caption") == tags.count("table")
    scrolls = [attrs for _, attrs in reader.elements if attrs.get("class") == "scroll"]
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in scrolls)


@pytest.mark.usefixtures("undrawn")
def test_the_page_forbids_itself_everything_but_its_own_style() -> None:
    html = page(full(), facts(), "en")
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(a["content"] or "" for _, a in Reader(html).elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert digest in policy
    assert "url(" not in style[1]
    assert "@import" not in style[1]


@pytest.mark.usefixtures("undrawn")
def test_a_toy_says_so_and_nothing_else_does() -> None:
    assert "DEMO: toy model, not yours" in page(flip_only(), PageFacts(), "en")
    assert "演示：玩具模型" in page(flip_only(), PageFacts(), "zh")
    assert "DEMO" not in page(full(), facts(), "en")


@pytest.mark.usefixtures("undrawn")
def test_messages_of_the_run_are_translated_and_other_english_is_marked() -> None:
    reason = message("verdict.reason.empty")
    counted = facts(messages={str(reason): reason})
    html = page(full(reason=str(reason)), counted, "zh")
    assert "<p>没有任何完整的答案。</p>" in html
    other = page(full(reason="Something else."), facts(), "zh")
    assert '<span lang="en">Something else.</span>' in other


@pytest.mark.usefixtures("undrawn")
def test_what_a_reader_needs_is_there() -> None:
    text = Reader(page(full(), facts(), "en")).text
    for words in (
        "Whether this model finds a fact depends on the fact's token position modulo 4.",
        "kvphase check http://127.0.0.1:8080 --like DeepSeek-V4-Flash-Base.kvphase",
        "32,768 tokens: not measured: it needs about 31 minutes; 9 are left",
        "The effect follows the fact's own position: it is phase.",
        "2 (2.0%)",
        "arXiv 2609.36322",
        "4f1d9a6be1c07733",
        "Felix",
        "No other traffic was seen",
    ):
        assert words in text, words
    assert "(nothing)" in text
    shell = Reader(page(full(target="toy:a; rm -rf /"), facts(run="a b.kvphase"), "en")).text
    assert "kvphase check 'toy:a; rm -rf /' --like 'a b.kvphase'" in shell
