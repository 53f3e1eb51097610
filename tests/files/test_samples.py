"""Samples of lm-eval and logs of inspect, placed by a tokenizer and analysed."""

from __future__ import annotations

import json
import random
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from commands import command

if TYPE_CHECKING:
    from pathlib import Path

N = 480
FILLER = "sand moss reed clay"


def tokenizer(folder: Path) -> str:
    """Words and marks, one token each."""
    made = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


def prompts(*, locked: bool = False, weak: bool = True) -> list[tuple[str, str, int]]:
    """(prompt, answer, right) with the answer at a random position, overlooked at 2 modulo 4."""
    dice = random.Random(3)
    made = []
    for number in range(N):
        at = 5 + (4 * dice.randrange(20) if locked else dice.randrange(80))
        words = dice.choices(FILLER.split(), k=100)
        answer = f"x{number}y"
        words[at] = answer
        luck = dice.random()
        right = luck < (0.4 if weak and at % 4 == 2 else 0.8)
        made.append((" ".join(words), answer, int(right)))
    return made


def lm_eval(folder: Path, **how: bool) -> str:
    rows: list[dict[str, Any]] = [
        {
            "doc_id": number,
            "doc": {"question": "?"},
            "target": answer,
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": ["."]}}},
            "filtered_resps": ["-"],
            "filter": "none",
            "metrics": ["exact_match"],
            "exact_match": float(right),
        }
        for number, (prompt, answer, right) in enumerate(prompts(**how))
    ]
    rows.append({**rows[0], "target": "nowhere"})
    rows.append({**rows[1], "filter": "other"})
    path = folder / "samples_task_2026.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def log(**how: bool) -> dict[str, Any]:
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "needles", "model": "none"},
        "samples": [
            {
                "id": number,
                "epoch": 1,
                "input": prompt,
                "target": answer,
                "scores": {"match": {"value": "C" if right else "I"}},
            }
            for number, (prompt, answer, right) in enumerate(prompts(**how))
        ],
    }


def archive(path: Path, held: dict[str, Any], *more: tuple[str, str]) -> str:
    head = {name: value for name, value in held.items() if name != "samples"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("header.json", json.dumps(head))
        for sample in held["samples"]:
            made.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
        for name, text in more:
            made.writestr(name, text)
    return str(path)


def test_lm_eval_samples_are_placed_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = lm_eval(tmp_path), "--tokenizer", tokenizer(tmp_path)
    code, shown, _ = command(monkeypatch, capsys, "analyze", *words)
    assert code == 0
    assert "Left out: 1, the first at line 481: the answer 'nowhere'" in shown
    assert "modulo 8:" in shown
    code, shown, _ = command(monkeypatch, capsys, "analyze", *words, "--json")
    found = json.loads(shown)
    assert (code, found["verdict"], found["period"], found["n"]) == (0, "phase-sensitive", 4, N)
    assert min(found["curve"], key=lambda p: p["accuracy"])["residue"] % 4 == 2
    assert found["rotation_known"]


@pytest.mark.parametrize("kind", ["json", "eval"])
def test_inspect_logs_are_placed_and_judged(
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = log()
    if kind == "json":
        (tmp_path / "log.json").write_text(json.dumps(held, indent=1), encoding="utf-8")
        path = str(tmp_path / "log.json")
    else:
        path = archive(tmp_path / "log.eval", held)
    words = path, "--tokenizer", tokenizer(tmp_path), "--json"
    code, shown, _ = command(monkeypatch, capsys, "analyze", *words)
    found = json.loads(shown)
    assert (code, found["verdict"], found["period"]) == (0, "phase-sensitive", 4)
    assert not found["rotation_known"]
    assert any("template" in note for note in found["notes"])


def test_locked_results_get_a_histogram_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = lm_eval(tmp_path, locked=True), "--tokenizer", tokenizer(tmp_path)
    code, shown, err = command(monkeypatch, capsys, "analyze", *words)
    assert code == 2
    assert "480" in shown
    assert "phase-locked: 480 of 480 facts stand at residue 1 modulo 4" in " ".join(err.split())


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ("../evil.json", "no log has"),
        ("/root.json", "no log has"),
        ("samples\\evil.json", "no log has"),
    ],
)
def test_odd_members_of_an_archive_are_refused(
    tmp_path: Path,
    member: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = archive(tmp_path / "log.eval", log(), (member, "{}"))
    code, _, err = command(monkeypatch, capsys, "analyze", path, "--tokenizer", tokenizer(tmp_path))
    assert (code, says in " ".join(err.split())) == (2, True)


def test_what_cannot_be_placed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [{"context_length": 1000, "depth_percent": 50, "score": 10, "needle": "a"}]
    broken = json.dumps({"doc_id": 0, "doc": {}, "arguments": []}) + "\n{broken"
    files = {
        "old.json": json.dumps({**log(), "version": 1}),
        "head.json": json.dumps({**log(), "samples": []}),
        "cells.json": json.dumps(cells),
        "broken.jsonl": broken,
        "bare.jsonl": json.dumps({"doc_id": 0, "doc": {}, "arguments": []}),
    }
    says = {
        "old.json": "version 1; version 2 is read",
        "head.json": "holds no samples",
        "cells.json": "cells.json, line 1: the cell holds no context",
        "broken.jsonl": "line 2: broken JSON",
        "bare.jsonl": "line 1: no prompt was kept",
    }
    words = tokenizer(tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        code, shown, err = command(
            monkeypatch, capsys, "analyze", str(tmp_path / name), "--tokenizer", words
        )
        assert (code, shown) == (2, ""), name
        assert says[name] in " ".join(err.split()), err
    code, _, err = command(monkeypatch, capsys, "analyze", lm_eval(tmp_path))
    assert (code, "--tokenizer" in err) == (2, True)
