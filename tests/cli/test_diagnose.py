"""kvphase diagnose, report --bundle and replay from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from commands import command
from known import engine
from kvphase.causes import cache, repeatability, session, split
from kvphase.serve import Faults, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of the causes: the others ask many questions."""
    monkeypatch.setattr(session, "CAUSES", (repeatability.CAUSE, split.CAUSE, cache.CAUSE))


@pytest.fixture(scope="module")
def broken() -> Iterator[str]:
    """A server whose cache is broken."""
    with serving(engine(), Faults.parse(["wrong-on-hit=0.6"])) as url:
        yield url


def test_from_diagnosis_to_replay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: str,
) -> None:
    run, bundle = str(tmp_path / "run.kvphase"), str(tmp_path / "issue.zip")
    code, out, err = command(monkeypatch, capsys, "diagnose", broken, "--out", run, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["schema"] == "kvphase/diagnosis@1"
    assert [one["status"] for one in found["causes"]] == ["not-found", "not-found", "found"]
    assert found["causes"][0]["would_have_seen"]
    assert "cache" in found["verdict"]
    assert len(found["next_steps"]) == 3
    beside = json.loads((tmp_path / "run.diagnosis.json").read_text("utf-8"))
    assert beside == found

    # Everything is in the file: going on asks nothing and says the same.
    words = ("diagnose", broken, "--out", run, "--resume", "--json")
    assert json.loads(command(monkeypatch, capsys, *words)[1])["causes"] == found["causes"]
    code, _, err = command(monkeypatch, capsys, "diagnose", broken, "--out", run)
    assert code == 2
    assert "exists already" in err

    code, out, _ = command(monkeypatch, capsys, "report", run, "--bundle", bundle)
    assert code == 0
    assert "issue.zip" in out
    code, out, _ = command(monkeypatch, capsys, "replay", bundle, broken, "--json")
    assert code == 0
    assert json.loads(out)["outcome"] == "same"
    code, out, _ = command(monkeypatch, capsys, "replay", bundle, "toy:full")
    assert code == 0
    assert "There: toy:known" in out

    for other in (("report", run), ("shift", "x.txt", broken, "--out", run, "--resume")):
        code, out, err = command(monkeypatch, capsys, *other)
        assert code == 2
        assert err.startswith("kvphase: ")
        assert err.count("\n") == 1


def test_the_table_says_what_became_of_each(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: str,
) -> None:
    run = str(tmp_path / "run.kvphase")
    code, out, _ = command(monkeypatch, capsys, "diagnose", broken, "--out", run, "--lang", "zh")
    assert code == 0
    assert "发现" in out
    assert "前缀缓存" in out
    code, out, err = command(
        monkeypatch, capsys, "diagnose", broken, "--budget", "20q", "--out", run + "2"
    )
    assert code == 0
    assert "not tested" in out
    assert "found  " not in out
    assert err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("diagnose", "http://127.0.0.1:9"), 3),
        (("diagnose", "toy:none"), 2),
        (("diagnose", "toy:full", "--prompt", "none.txt"), 2),
        (("diagnose", "toy:full", "--context", "0"), 2),
        (("diagnose", "toy:full", "--resume"), 2),
        (("diagnose", "toy:full", "--against", "none.kvphase"), 2),
        (("replay", "none.zip", "toy:full"), 2),
        (("report", "none.kvphase", "--bundle", "issue.zip"), 2),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    found, out, err = command(monkeypatch, capsys, *words)
    assert found == code
    assert out == ""
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("kvphase: ")
