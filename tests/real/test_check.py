"""Whole measurements of a real model on a real llama-server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kvphase
from kvphase.runs.store import Store
from kvphase.types import Arm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.slow]

NEAR_TIE = 0.5
"""Log-probability between the two best tokens below which arithmetic may decide."""


def test_a_real_model_gets_an_honest_verdict(smollm2: str, tmp_path: Path) -> None:
    """Full attention: no phase may be found; a model this small may leave the rest open."""
    path = tmp_path / "a.kvphase"
    settings = kvphase.Settings(
        context=2048, records=16, modulus=4, questions=64, cold=1, seed=3, early=False
    )
    run = kvphase.check(smollm2, settings, out=path, budget=kvphase.Budget())
    found = run.verdict
    assert found.n == 64
    assert found.verdict in ("not-detected", "inconclusive")
    assert 0.1 < found.mean < 0.95
    # Each of the four prefixes once, with the four tokens of the warm-up; two tokens a question
    # (one for a repeat that the cache holds whole); one cold prefill.
    prefix, asks = 2046, run.totals["asked"]
    assert asks == 64 + 64 + 64 + 1
    assert run.totals["prefilled"] is not None
    assert run.totals["prefilled"] <= 4 * (prefix + 4) + 2 * asks + 2048 + 4 * 4
    assert run.manifest["model"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "127.0.0.1" in run.manifest["target"]


def test_a_curve_costs_a_fiftieth_of_its_questions_sent_whole(smollm2: str, tmp_path: Path) -> None:
    """256 records, 32 questions at each of 8 residues in one context."""
    path = tmp_path / "a.kvphase"
    settings = kvphase.Settings(context=2400, records=256, questions=256, cold=3)
    run = kvphase.check(smollm2, settings, out=path, budget=kvphase.Budget())
    assert [point.n for point in run.verdict.curve] == [32] * 8
    whole = 256 * run.rung.stage.design["context_tokens"]
    with Store.read(path) as store:
        answers = store.answers()
        of_screen = (
            "SELECT SUM(prefilled) FROM answers JOIN asks ON id = ask_id WHERE arm != 'cold'"
        )
        spent = int(store._rows(of_screen)[0][0])
    assert whole >= 50 * spent
    cold = answers.where(answers.arm == Arm.COLD.value)
    screen = answers.where(answers.arm == Arm.SCREEN.value)
    assert len(cold) == 3
    for item, text in zip(cold.item, cold.text, strict=True):
        original = screen.where(screen.item == item)
        assert text == original.text[0] or original.margin[0] < NEAR_TIE
