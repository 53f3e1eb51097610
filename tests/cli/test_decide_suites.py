"""``kvphase compare`` and ``kvphase gate`` on runs of ``kvphase shift``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from cli.test_shift import lookup, suite
from kvphase.cli import main
from kvphase.runs.shift import run_shift
from kvphase.runs.shift_plan import Options
from kvphase.runs.shift_source import Wanted, read_sources

if TYPE_CHECKING:
    from pathlib import Path

TASKS = 12


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one suite on two toys, another suite, a prompt without an answer."""
    folder: Path = tmp_path_factory.mktemp("suites")
    sources = read_sources(suite(folder, TASKS), Wanted())
    for toy in ("w4s4", "full"):
        run_shift(sources, f"toy:{toy}", Options(full=True), out=folder / f"{toy}.kvphase")
    run_shift(sources[:3], "toy:full", out=folder / "few.kvphase")
    (folder / "one.txt").write_text(lookup(0)[0], encoding="utf-8")
    asked = read_sources(str(folder / "one.txt"), Wanted())
    run_shift(asked, "toy:full", out=folder / "ungraded.kvphase")
    return folder


def command(
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *words: str,
) -> tuple[int, str, str]:
    monkeypatch.chdir(runs)
    monkeypatch.setenv("KVPHASE_LANG", "en")
    monkeypatch.setattr(sys, "argv", ["kvphase", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    shown = capsys.readouterr()
    return int(stop.value.code or 0), shown.out, shown.err


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_two_toys_on_one_suite_are_paired(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lang: str
) -> None:
    words = ("compare", "w4s4.kvphase", "full.kvphase")
    code, shown, err = command(runs, monkeypatch, capsys, *words, "--lang", lang)
    assert (code, err) == (0, "")
    assert ("12 tasks" in shown) == (lang == "en")
    code, shown, _ = command(runs, monkeypatch, capsys, *words, "--json", "--figure", "c.svg")
    found = json.loads(shown)
    assert code == 0
    assert (runs / "c.svg").exists()
    assert {run["suite"]["digest"] for run in found["runs"]} == {
        found["runs"][0]["suite"]["digest"]
    }
    (pair,) = found["lengths"][0]["pairs"]
    assert (pair["paired"], pair["n"], pair["left_out"]) == (True, TASKS * 16, 0)
    assert pair["right_everywhere"]["tasks"] == TASKS
    # The control is right on all of them wherever they stand.
    assert pair["right_everywhere"]["second"] == TASKS
    assert pair["finding"] != "none"
    ranking = found["lengths"][0]["ranking"]
    assert [one["run"] for one in ranking] == [1, 0]


def test_a_suite_passes_or_fails_by_its_worst_position(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown, _ = command(runs, monkeypatch, capsys, "gate", "full.kvphase", "--worst", "0.7")
    assert code == 0
    assert shown.startswith("PASS")
    assert "12 tasks of which 0 flip" in shown
    words = ("gate", "w4s4.kvphase", "--worst", "0.9", "--max-gap", "10", "--json")
    code, shown, _ = command(runs, monkeypatch, capsys, *words)
    found = json.loads(shown)
    assert (code, found["outcome"]) == (1, "fail")
    assert found["suite"]["tasks"] == TASKS
    code, shown, _ = command(runs, monkeypatch, capsys, "gate", "few.kvphase", "--worst", "0.7")
    assert code == 1
    assert "What would settle it: " in shown
    assert "tasks" in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compare", "full.kvphase", "few.kvphase"), "the suite of prompts (its digest) differs"),
        (("compare", "full.kvphase", "ungraded.kvphase"), "no task of ungraded.kvphase"),
        (("gate", "ungraded.kvphase", "--worst", "0.9"), "no task of ungraded.kvphase"),
    ],
)
def test_what_is_no_suite_or_another_is_refused(
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    says: str,
) -> None:
    code, shown, err = command(runs, monkeypatch, capsys, *words)
    assert (code, shown) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_few_tasks_rank_the_better_run_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = read_sources(suite(tmp_path, 6), Wanted())
    for name, toy in (("a", "w8s4"), ("b", "full")):
        out = tmp_path / f"{name}.kvphase"
        run_shift(sources, f"toy:{toy}", Options(full=True), out=out)
    words = ("compare", "a.kvphase", "b.kvphase")
    code, shown, _ = command(tmp_path, monkeypatch, capsys, *words, "--json")
    found = json.loads(shown)["lengths"][0]
    assert code == 0
    ranking = found["ranking"]
    assert all(one["worst"] <= one["mean"] for one in ranking)
    means = [one["mean"] for one in ranking]
    assert means[0] > means[1]
    assert ranking[0]["run"] == 1
    gap = found["pairs"][0]["gap"]
    assert gap is None or gap["ci"][0] < gap["ci"][1]
