"""``kvphase.shift`` from Python: texts, files, messages, and inside a running loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import kvphase
from cli.test_shift import lookup, suite


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_text_is_the_prompt_itself_and_a_path_a_file(tmp_path: Path) -> None:
    prompt, right, wrong = lookup(4)
    run = kvphase.shift(prompt, answer=right, against=wrong)
    assert (run.found.verdict, run.found.period) == ("phase-sensitive", 4)
    assert run.path.parent.name == "kvphase-runs"
    (tmp_path / "one.txt").write_text(prompt, encoding="utf-8")
    other = kvphase.shift(
        tmp_path / "one.txt", "toy:w8s4", answer=right, against=wrong, out=tmp_path / "a.kvphase"
    )
    assert other.answers.text.tolist() == run.answers.text.tolist()


def test_it_works_inside_a_running_loop(tmp_path: Path) -> None:
    async def asked() -> kvphase.ShiftRun:
        prompt, right, _ = lookup(0)
        return kvphase.shift([{"prompt": prompt, "answer": right}], "toy:full")

    run = asyncio.run(asked())
    assert len(run.plan["tasks"]) == 1
    path = suite(tmp_path, 2)
    tasks = kvphase.shift(tmp_path / path, "toy:full", budget=kvphase.Budget(questions=99))
    assert len(tasks.plan["tasks"]) == 2


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "empty"),
        ({"a": 1}, "messages"),
        ([{"answer": "x"}], "prompt"),
        (lookup(0)[0], "Zebulon"),
    ],
)
def test_bad_input_is_a_usage_error(prompt: object, says: str) -> None:
    with pytest.raises(kvphase.UsageError, match=says):
        kvphase.shift(prompt, "toy:full", answer="Zebulon", budget=kvphase.Budget(questions=1))  # type: ignore[arg-type]
    assert not list(Path().glob("**/*.kvphase"))
