"""Every format imported, located, shifted and judged."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from files.reader import Reader, never
from kvphase.decide.compare import compare
from kvphase.decide.gate import Limits, gate
from kvphase.errors import UsageError
from kvphase.probes.formats import read_dataset
from kvphase.report.document import run_document
from kvphase.report.files import Wanted, write_report
from kvphase.runs.budget import Budget
from kvphase.runs.check import check, load
from kvphase.runs.dataset import Options, run_dataset
from kvphase.runs.evidence import read_evidence
from kvphase.runs.store import Store
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvphase.runs.check import Run

DATA = Path(__file__).with_name("data")


def measured(
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    out: Path,
    modulus: int = 4,
    *,
    resume: bool = False,
) -> Run:
    monkeypatch.setattr("kvphase.runs.dataset.open_runtime", reader.opened)
    return run_dataset(
        reader.dataset, "reader", Options(modulus=modulus), out=out, budget=Budget(), resume=resume
    )


def weak(at: int) -> bool:
    return at % 4 == 2


@pytest.mark.parametrize(
    ("name", "format_", "facts", "modulus", "spread"),
    [
        ("lookup.jsonl.gz", "kv", 8, 4, "few"),
        ("json_kv.jsonl", "json-kv", 8, 4, "few"),
        ("niah.jsonl", "ruler", 16, 4, "locked"),
        ("essays.json", "needle", 8, 4, "few"),
        ("chats.jsonl", "chat", 8, 4, "locked"),
        ("passkey.txt", "passkey", 1, 8, "few"),
        ("story.txt", "story", 5, 8, "few"),
    ],
)
def test_a_weak_residue_is_found_whatever_the_format(
    name: str,
    format_: str,
    facts: int,
    modulus: int,
    spread: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    dataset = read_dataset(DATA / name)
    assert (dataset.format, dataset.facts, dataset.unusable) == (format_, facts, ())
    reader = Reader(dataset, weak)
    run = measured(reader, monkeypatch, tmp_path / "a.kvphase", modulus)
    held = run.manifest["dataset"]
    assert held["spread"] == spread
    assert sum(held["residues"]["4"]) == facts
    curve = {p.residue: p.accuracy for p in run.verdict.curve}
    assert curve == {r: float(r % 4 != 2) for r in range(modulus)}
    assert run.verdict.verdict == "phase-sensitive"
    assert run.verdict.period == 4
    # Every request moves its facts by whole tokens and leaves all else as it was.
    with Store.read(tmp_path / "a.kvphase") as store:
        asks = store.asks(run.rung.stage.name)
    for ask in asks:
        if ask.arm is Arm.SCREEN:
            first = min(a.target for a in asks if a.arm is Arm.SCREEN and a.item == ask.item)
            assert ask.target - first in range(2 * modulus)


def test_a_reader_without_a_weak_residue_is_not_called_phase_sensitive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = Reader(read_dataset(DATA / "chats.jsonl"), luck=0.3)
    run = measured(reader, monkeypatch, tmp_path / "a.kvphase")
    assert run.verdict.verdict in ("not-detected", "inconclusive")
    assert "Phase-locked: 7 of 8" in run.verdict.notes[0]


def test_an_effect_of_the_question_is_not_called_phase(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = Reader(read_dataset(DATA / "chats.jsonl"), by_length=True)
    run = measured(reader, monkeypatch, tmp_path / "a.kvphase")
    assert run.verdict.verdict == "unreliable"
    assert "only the question moves" in run.verdict.reason


def test_a_killed_run_goes_on_and_ends_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dataset = read_dataset(DATA / "niah.jsonl")
    whole = measured(Reader(dataset, weak), monkeypatch, tmp_path / "a.kvphase")
    part = Reader(dataset, weak, stop_after=30)
    with pytest.raises(KeyboardInterrupt):
        measured(part, monkeypatch, tmp_path / "b.kvphase")
    rest = Reader(dataset, weak)
    again = measured(rest, monkeypatch, tmp_path / "b.kvphase", resume=True)
    assert (again.verdict, again.partial) == (whole.verdict, False)
    # One request timed the reader in the first sitting only.
    assert (
        len(part.asked) + len(rest.asked) == int(whole.totals["asked"] or 0) // 2 + 1
    )  # two facts each
    other = Reader(read_dataset(DATA / "chats.jsonl"), weak)
    with pytest.raises(UsageError, match="another"):
        measured(other, monkeypatch, tmp_path / "b.kvphase", resume=True)
    with pytest.raises(UsageError, match="give the file again"):
        check(out=tmp_path / "b.kvphase", resume=True)


def test_a_run_is_reported_compared_and_gated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dataset = read_dataset(DATA / "chats.jsonl")
    for name, overlooks in (("a", weak), ("b", lambda at: at % 4 == 1)):
        measured(Reader(dataset, overlooks), monkeypatch, tmp_path / f"{name}.kvphase")
    document = run_document(load(tmp_path / "a.kvphase"))
    assert document.design == "shifted"
    assert document.dataset is not None
    assert (document.dataset.spread, document.dataset.at) == ("locked", (8, 0, 7))
    assert document.dataset.mean_as_is == 1.0  # what the file alone would have said
    write_report(tmp_path / "a.kvphase", Wanted(), "en")
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "Phase-locked: 7 of 8" in page
    assert "--dataset chats.jsonl" in page
    runs = [read_evidence(tmp_path / f"{name}.kvphase") for name in "ab"]
    assert gate(runs[0], Limits(0.5, None)).outcome == "fail"
    (table,) = compare(runs).tables
    assert (table.rung, len(table.standings), len(table.pairs)) == (runs[0].headline, 2, 1)


def scattered(folder: Path, count: int = 56) -> Path:
    """A file whose facts stand at positions of every residue, as chance has it."""
    dice = random.Random(5)
    lines = []
    for number in range(count):
        words = dice.choices(["mill", "water", "stone", "field", "road", "lamp"], k=12)
        before = " ".join(dice.choices(words, k=dice.randrange(20, 52)))
        behind = " ".join(dice.choices(words, k=dice.randrange(20, 40)))
        answer = "".join(dice.choices("ABCDEFGHKLMNPRSTUVW", k=7)).lower()
        text = (
            f"Some names are hidden in the text below.\n\n{before}.\n\nThe name kept for kettle"
            f" {number} is {answer}.\n\n{behind}.\n\nWhich name is kept for kettle {number}? It is"
        )
        entry = {"index": number, "input": text, "outputs": [answer], "length": 99}
        lines.append(json.dumps(entry))
    path = folder / "scattered.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("overlooks", [weak, never])
def test_a_file_that_is_not_locked_is_judged_as_it_stands_and_shifted(
    overlooks: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = Reader(read_dataset(scattered(tmp_path)), overlooks, luck=0.1)
    run = measured(reader, monkeypatch, tmp_path / "a.kvphase")
    assert run.manifest["dataset"]["spread"] == "spread"
    asis, moved = run.results
    assert (asis.stage.kind, moved.stage.kind) == ("asis", "shifted")
    assert asis.verdict is not None
    assert asis.verdict.n == 56
    hit = overlooks is weak
    # Its own positions tell which residue is weak; the shifted prompts decide.
    worst = asis.verdict.worst
    assert worst is not None
    assert ((worst.residue, worst.accuracy) == (2, 0.0)) == hit
    assert (run.verdict.verdict == "phase-sensitive") == hit
    assert run.rung.stage.name == moved.stage.name
    document = run_document(run)
    assert document.dataset is not None
    assert (document.dataset.spread, document.dataset.at) == ("spread", None)
    assert document.dataset.n_as_is == 56
    write_report(tmp_path / "a.kvphase", Wanted(), "en")
    assert gate(read_evidence(tmp_path / "a.kvphase"), Limits(0.5, None)).outcome == (
        "fail" if hit else "pass"
    )
