"""Every format imported, located, shifted and judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from files.reader import Reader
from kvphase.probes.formats import read_dataset
from kvphase.runs.budget import Budget
from kvphase.runs.dataset import Options, run_dataset
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
