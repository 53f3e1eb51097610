"""``kvphase shift`` where scores are missing, where toys cannot spell, and notes of suites."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cli.test_shift import suite, written
from commands import command
from kvphase.probes.shifted import judged
from kvphase.report.shift import notes_by_kind, notes_of
from kvphase.runs.shift import load_shift, run_shift
from kvphase.runs.shift_source import Wanted, read_sources
from kvphase.runtimes.scores import Scorer
from kvphase.serve import serving
from kvphase.testing import write_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPHASE_LANG", "en")
    write_tokenizer("tok.json")


@pytest.mark.parametrize("dialect", ["chat", "deepseek"])
def test_a_chat_that_answers_with_a_space_has_scores(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dialect: str,
) -> None:
    path, right, wrong = written(tmp_path)
    with serving("w8s4", dialect=dialect) as url:
        words = ("shift", path, url, "--tokenizer", "tok.json", "--out", "a.kvphase")
        code, shown, err = command(
            monkeypatch, capsys, *words, "--answer", right, "--against", wrong, "--json"
        )
    found = json.loads(shown)
    assert code == 0, err
    assert (found["measure"], found["verdict"], found["period"]) == ("score", "phase-sensitive", 4)
    direct = run_shift(read_sources(path, Wanted(answer=right, against=wrong)), "toy:w8s4")
    mine, its = load_shift(tmp_path / "a.kvphase").answers, direct.answers
    screens = [a.logprob[a.arm == "screen"] for a in (mine, its)]
    assert not np.isnan(screens[0]).any()
    # The same tokens in the same places, but for the digits that JSON is given.
    np.testing.assert_allclose(np.sort(screens[0]), np.sort(screens[1]), atol=1e-3)


@pytest.mark.parametrize("dialect", ["chat", "deepseek"])
def test_without_scores_there_is_a_table_without_bars_and_a_note(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dialect: str,
) -> None:
    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(Scorer, "score", nothing)
    path, right, _ = written(tmp_path)
    with serving("w8s4", dialect=dialect) as url:
        words = ("shift", path, url, "--tokenizer", "tok.json", "--answer", right)
        code, shown, err = command(monkeypatch, capsys, *words, "--move", "head")
    assert code == 0, err
    assert "nan" not in shown
    assert "█" not in shown
    flat = " ".join(shown.split())
    assert "saturated" in flat
    assert "The answers are right at all 8 shifts" in flat
    assert "the right answer's score, which was to be the measure, never came" in flat


def test_some_missing_scores_are_counted_and_shown_as_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, right, wrong = written(tmp_path)
    score, seen = Scorer.score, iter(range(1000))

    async def once(self: Scorer, *words: object) -> float | None:
        return None if next(seen) < 2 else await score(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Scorer, "score", once)
    with serving("w8s4", dialect="chat") as url:
        words = ("shift", path, url, "--tokenizer", "tok.json", "--answer", right)
        code, shown, err = command(
            monkeypatch, capsys, *words, "--against", wrong, "--out", "a.kvphase"
        )
    assert code == 0, err
    run = load_shift(tmp_path / "a.kvphase")
    missing = int(np.isnan(run.answers.logprob).sum())
    assert missing == 1
    assert run.found.measure == "score"
    said = f"1 of {len(run.answers)} answers came without the right answer's score"
    assert said in " ".join(shown.split())
    whole = replace(run.answers, logprob=np.nan_to_num(run.answers.logprob, nan=-1.0))
    assert not any("score" in note for note in judged(run.plan, whole).notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" swan: Ruth;\n cup: Adam; swan:", r"'\n', line 1, column 13"),
        ("swan: Ruth; swan:", "'swan', line 1, column 1 "),
        (
            " swan: Ruth;{{mark}} cup: Adam;{{/mark}} Zebra: Tim; cup:",
            "' Zebra', line 1, column 24",
        ),
        (" swan: Ruth; cup: Adam; cup: é", "' é', line 1, column 29"),
    ],
)
def test_the_character_that_a_toy_cannot_spell_is_named_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    says: str,
) -> None:
    (tmp_path / "odd.txt").write_text(text, encoding="utf-8")
    code, _, err = command(monkeypatch, capsys, "shift", "odd.txt", "toy:w8s4", "--answer", "Ruth")
    assert code == 2
    assert says in err


def test_a_suite_says_each_kind_of_note_once_with_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("shift", suite(tmp_path, 3), "toy:w8s4", "--full", "--out", "a.kvphase")
    code, shown, _ = command(monkeypatch, capsys, *words)
    assert code == 0
    notes = [line for line in shown.splitlines() if line.startswith("Note:")]
    assert len(notes) == 3  # one for each filler that cannot be cut
    assert " ".join(shown.split()).count("(3 of 3 tasks)") == 3
    plan = load_shift(tmp_path / "a.kvphase").plan
    assert len(notes_of(plan)) == 9  # the document keeps every task's own
    plan["tasks"][0]["notes"] = plan["tasks"][1]["notes"] = []
    assert [str(note) for note in notes_by_kind(plan)] == [str(note) for note in notes_of(plan)]


def test_notes_that_quote_different_answers_are_one_kind() -> None:
    def noted(answer: str) -> dict[str, object]:
        values = {"answer": answer, "count": 1}
        return {"name": answer, "notes": [{"key": "shift.note-twice", "values": values}]}

    (note,) = notes_by_kind({"tasks": [noted("Ruth"), noted("Adam")]})
    assert "2 of 2 tasks" in note
    assert "Ruth" not in note
