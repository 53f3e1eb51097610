"""Every format imported, located, shifted and judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from files.reader import Reader
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
