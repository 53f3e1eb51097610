"""A toy behind HTTP gives, answer by answer, what the same toy gives in process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kvphase
from kvphase.runs.store import Store
from kvphase.runtimes import detect
from kvphase.serve import Faults, serving

if TYPE_CHECKING:
    from pathlib import Path


def columns(path: Path) -> list[tuple[object, ...]]:
    with Store.read(path) as store:
        return store._rows(
            "SELECT ordinal, id, target, text, correct FROM asks JOIN answers"
            " ON ask_id = id ORDER BY ordinal"
        )


@pytest.mark.slow
def test_served_and_in_process_answers_are_the_same(tmp_path: Path) -> None:
    settings = kvphase.Settings(seed=7, questions=240, cold=10)
    direct = kvphase.check("toy:w8s4", settings, out=tmp_path / "direct.kvphase")
    with serving("w8s4") as url:
        served = kvphase.check(url, settings, out=tmp_path / "served.kvphase")
    assert columns(tmp_path / "served.kvphase") == columns(tmp_path / "direct.kvphase")
    assert (served.totals["cached"] or 0) > 0
    assert served.verdict.curve[0].correct == direct.verdict.curve[0].correct
    assert served.verdict.verdict == direct.verdict.verdict
    assert served.manifest["toy"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("html", "HTML"),
        ("loading", "loading|503|not ready"),
        ("cut=300", "cut|truncated|tokens"),
        ("5xx=1,after=60", "asked|HTTP 5"),
        ("half-json=1,after=60", "JSON|asked"),
    ],
)
def test_a_broken_server_ends_in_one_sentence(
    tmp_path: Path, fault: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "LOADING_SECONDS", 2.0)
    settings = kvphase.Settings(questions=96, cold=0)
    with (
        serving("full", Faults.parse([fault])) as url,
        pytest.raises(kvphase.RuntimeFault, match=says) as caught,
    ):
        kvphase.check(url, settings, out=tmp_path / "a.kvphase")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_faults_of_the_runtime_are_not_called_phase(tmp_path: Path) -> None:
    """A cache that answers wrongly on hits is named as such."""
    settings = kvphase.Settings(questions=240, cold=60)
    with serving("full", Faults.parse(["wrong-on-hit=0.5"])) as url:
        run = kvphase.check(url, settings, out=tmp_path / "a.kvphase")
    assert run.verdict.verdict == "unreliable"
    assert run.verdict.audit.cold_flips > 10


@pytest.mark.slow
def test_passing_faults_lose_nothing(tmp_path: Path) -> None:
    settings = kvphase.Settings(questions=96, cold=0)
    kvphase.check("toy:full", settings, out=tmp_path / "direct.kvphase")
    with serving("full", Faults.parse(["reset=0.02", "5xx=0.02", "half-json=0.02"])) as url:
        kvphase.check(url, settings, out=tmp_path / "served.kvphase")
    assert columns(tmp_path / "served.kvphase") == columns(tmp_path / "direct.kvphase")
