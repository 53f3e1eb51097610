"""What only looks like phase, on served toys: never called phase, and named or withheld."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import kvphase
from kvphase.report.terminal import audit_line
from kvphase.runtimes.adapters import Choice
from kvphase.testing import double

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SMALL = kvphase.Settings(questions=192, cold=16, seed=3)
MODELS = ("full", "w8s4")


def measured(path: Path, model: str, faults: str, dialect: str = "llama-server") -> kvphase.Run:
    settings = SMALL if dialect == "llama-server" else replace(SMALL, cold=None)
    with double(model, dialect=dialect, faults=faults) as server:
        run = kvphase.check(server.url, settings, out=path / "a.kvphase", choice=Choice())
    for result in run.results:
        if result.verdict is not None and model == "full":
            assert result.verdict.verdict != "phase-sensitive", result.stage.name
    assert run.verdict.verdict != "phase-sensitive"
    return run


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", ["wrong-on-hit=0.5", "prefill-split=0.5"])
def test_a_cache_that_changes_answers_makes_a_run_unreliable(
    tmp_path: Path, model: str, fault: str
) -> None:
    """Cold asks have one prefill in one piece; both faults are off there."""
    found = measured(tmp_path, model, fault).verdict
    assert found.verdict == "unreliable"
    assert "without the prefix cache" in found.reason
    assert found.audit.excess_lower95 > 0.02


@pytest.mark.parametrize("model", MODELS)
def test_answers_at_random_are_named(tmp_path: Path, model: str) -> None:
    found = measured(tmp_path, model, "random=0.5").verdict
    assert any("simply asked again" in note for note in found.notes)
    assert found.audit.repeat_flips > 10
    assert "repeat" in (audit_line(found.audit) or "")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dialect", ["llama-server", "ollama"])
def test_a_prompt_that_is_cut_ends_the_run(tmp_path: Path, model: str, dialect: str) -> None:
    with pytest.raises(kvphase.RuntimeFault, match=r"evaluated 100 tokens of a prompt of"):
        measured(tmp_path, model, "cut=100", dialect)
