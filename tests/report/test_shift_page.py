"""The page of a shift run: what it shows, both languages, names and answers as text."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hostile
from cli.test_shift import lookup, suite
from kvphase.errors import UsageError
from kvphase.report import draw
from kvphase.report.files import Wanted as Parts
from kvphase.report.files import write_report
from kvphase.report.lines import clean
from kvphase.report.shift_page import shift_page
from kvphase.runs.shift import run_shift
from kvphase.runs.shift_plan import Options
from kvphase.runs.shift_source import Wanted, read_sources
from report.test_page import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.catalogue import Language
    from kvphase.runs.shift import ShiftRun

LANGUAGES: tuple[Language, ...] = ("en", "zh")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> ShiftRun:
    """A prompt with a period, a control and moved spans."""
    return found_on_one(tmp_path_factory.mktemp("one"))


def found_on_one(folder: Path) -> ShiftRun:
    """The run of one prompt whose answer follows its position."""
    prompt, right, wrong = lookup(4)
    (folder / "one.txt").write_text(prompt, encoding="utf-8")
    sources = read_sources(str(folder / "one.txt"), Wanted(answer=right, against=wrong))
    options = Options(move=("head", "tail"))
    return run_shift(sources, "toy:w8s4", options, out=folder / "one.kvphase")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> ShiftRun:
    """A suite on the control model."""
    folder = tmp_path_factory.mktemp("several")
    return run_shift(
        read_sources(suite(folder, 3), Wanted()), "toy:full", out=folder / "suite.kvphase"
    )


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that cost nothing."""
    monkeypatch.setattr(draw, "svg", lambda *_: '<svg xmlns="http://www.w3.org/2000/svg"/>')
    monkeypatch.setattr(draw, "png", lambda *_: b"")


def renamed(run: ShiftRun, name: str) -> ShiftRun:
    """The run with ``name`` wherever a prompt, an answer, a model or a server has its say."""
    manifest = dict(run.manifest)
    for key in ("target", "runtime", "build", "model", "quant", "prompts", "kvphase"):
        manifest[key] = name
    tasks = [
        {**task, "name": name, "notes": [*task["notes"], {"text": name}]}
        for task in run.plan["tasks"]
    ]
    answers = replace(run.answers, text=np.full(len(run.answers), name))
    found = replace(run.found, reason=name, would_settle=name, notes=(name,))
    plan = {**run.plan, "tasks": tasks}
    path = run.path.with_name("x y.kvphase")
    return replace(run, path=path, manifest=manifest, plan=plan, answers=answers, found=found)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("which", ["one", "several"])
def test_it_says_what_the_terminal_says(
    request: pytest.FixtureRequest, which: str, language: Language
) -> None:
    run: ShiftRun = request.getfixturevalue(which)
    html = shift_page(run, language)
    reader = Reader(html)
    assert not reader.open
    assert "None" not in reader.text
    assert "{" not in reader.text
    sections = {
        attrs["id"]
        for tag, attrs in reader.elements
        if tag == "section" and attrs["id"] != "result"
    }
    anchors = {href.removeprefix("#") for href in reader.attributes("href") if href[0] == "#"}
    assert anchors == sections | {"result"}
    assert ("moves" in sections) == (which == "one")
    assert ("tasks" in sections) == (which == "several")
    ids = reader.attributes("id")
    assert len(ids) == len(set(ids))
    tags = [tag for tag, _ in reader.elements]
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    assert tags.count("caption") == tags.count("table")
    assert ("DEMO: toy model, not yours" in reader.text) == (language == "en")
    for text in {str(text).strip() for text in run.answers.text}:
        assert text in reader.text


@pytest.mark.usefixtures("undrawn")
def test_the_finding_its_shifts_and_its_control_are_there(one: ShiftRun) -> None:
    text = Reader(shift_page(one, "en")).text
    assert one.found.verdict == "phase-sensitive"
    assert str(one.found.reason) in text
    assert "kvphase shift PROMPT toy:w8s4 --seed 0" in text
    assert "kvphase report one.kvphase --lang en" in text
    assert one.manifest["prompts"] in text
    assert one.found.tail is not None
    assert f"{one.found.tail.largest_pp:.1f}" in text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", hostile.NAMES)
def test_prompts_answers_and_names_are_text(one: ShiftRun, name: str) -> None:
    html = shift_page(renamed(one, name), "en")
    reader = Reader(html)
    assert not reader.open
    assert not {"script", "iframe", "object"} & {tag for tag, _ in reader.elements}
    assert not [attr for _, attrs in reader.elements for attr in attrs if attr.startswith("on")]
    for link in ("src", "href", "srcset"):
        for value in reader.attributes(link):
            assert value.startswith(("data:image/", "data:,", "#")), value
    assert not {c for c in html if not c.isprintable() and c != "\n"}
    assert clean(name) in reader.text
    assert "5439" not in reader.text
    assert not reader.attributes("style")


def test_its_figure_is_a_picture_and_the_run_is_left_alone(one: ShiftRun) -> None:
    before = one.path.read_bytes()
    written = write_report(one.path, Parts(), "en")
    assert written.page == one.path.with_suffix(".html")
    assert written.verdict == "phase-sensitive"
    html = written.page.read_text("utf-8")
    assert html.count("data:image/svg+xml") == 5
    assert html.count("data:image/png") == 1
    assert one.path.read_bytes() == before
    with pytest.raises(UsageError, match="has a page, but no card"):
        write_report(one.path, Parts(card=one.path.with_suffix(".png")), "en")
