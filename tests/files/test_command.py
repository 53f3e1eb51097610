"""``kvphase check --dataset`` on a toy, whose words a file is written in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import command

DATA = Path(__file__).with_name("data")


def test_a_locked_file_hides_what_its_shifts_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "a.kvphase")
    words = ("toy:w8s4", "--dataset", str(DATA / "toy.jsonl"), "--modulus", "4", "--out", out)
    code, shown, _ = command(monkeypatch, capsys, "check", *words)
    assert code == 0
    assert shown.index("modulo 4:") < shown.index("As the file stands")
    assert "Phase-locked: 20 of 20 facts stand at residue 3 modulo 4." in " ".join(shown.split())
    found = json.loads((tmp_path / "a.verdict.json").read_text())
    assert found["dataset"]["residues"]["4"] == [0, 0, 0, 20]
    assert found["worst"]["residue"] == 0  # keys are weak at 2, their answers stand two further on
    assert found["mean"] < found["dataset"]["mean_as_is"]


def test_a_plan_shows_the_histogram_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("toy:full", "--dataset", str(DATA / "toy.jsonl"), "--plan")
    code, shown, _ = command(
        monkeypatch, capsys, "check", *words, "--budget", "40q", "--lang", "zh"
    )
    assert code == 0
    assert "相位锁定" in shown
    code, shown, _ = command(monkeypatch, capsys, "check", *words, "--json")
    plan = json.loads(shown)
    assert [part["part"] for part in plan["parts"]] == ["asis", "shifted"]
    assert plan["parts"][1]["prefills"] == 16 * plan["parts"][1]["prompts"]
    assert not (tmp_path / "kvphase-runs").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--dataset", "gone.jsonl"), "gone.jsonl"),
        (("--dataset", str(DATA / "story.txt")), "story.txt, line 1: it holds characters"),
        (("--dataset", str(DATA / "chats.jsonl")), "line 1: this target renders no chat"),
        (("--dataset", str(DATA / "toy.jsonl"), "--rungs", "flip"), "--rungs composes prompts"),
        (("--dataset", str(DATA / "toy.jsonl"), "--modulus", "64"), "at most 16"),
        (("--dataset", str(DATA / "toy.jsonl"), "--budget", "3q"), "not even one prompt fits"),
        (("--dataset", "long.jsonl"), "long.jsonl, line 1: it has 6,"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    words: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    long = {"input": " and" * 6000 + " cat: Alice; cat:", "outputs": ["Alice"]}
    (tmp_path / "long.jsonl").write_text(json.dumps(long), encoding="utf-8")
    code, _, err = command(monkeypatch, capsys, "check", "toy:full", *words)
    assert code == 2
    assert says in " ".join(err.split()), err
    assert not list(tmp_path.glob("kvphase-runs/*.kvphase"))
