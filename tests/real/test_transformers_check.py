"""Trained models of transformers, measured in process: DeepSeek-V4's layers and full attention.

``models`` holds what ``benchmarks/transformers_v4.py`` trained, with its command and log beside it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kvphase
from kvphase.runs.settings import PROBES

pytestmark = [pytest.mark.real, pytest.mark.slow]

MODELS = Path(__file__).with_name("models")


def test_deepseek_v4_depends_on_phase(tmp_path: Path) -> None:
    """72 records of two tokens; once the effect is found, the contexts are shifted."""
    design = {**PROBES["lookup@1"][0], "context_tokens": 800}
    run = kvphase.check(
        f"transformers:{MODELS / 'deepseek-v4'}",
        kvphase.Settings(frozen=(design,)),
        out=tmp_path / "v4.kvphase",
    )
    assert (run.verdict.verdict, run.verdict.period) == ("phase-sensitive", 4)
    assert run.verdict.audit.repeat_flips == run.verdict.audit.cold_flips == 0
    assert run.confirmation is not None
    assert run.confirmation.confirmation is not None
    assert run.confirmation.confirmation.status == "follows-target"


def test_full_attention_does_not(tmp_path: Path) -> None:
    """At a length it was not trained for, where it is right about one time in four."""
    run = kvphase.check(
        f"transformers:{MODELS / 'llama'}",
        kvphase.Settings(context=600, records=24, questions=960, adapt=False, confirm="never"),
        out=tmp_path / "llama.kvphase",
    )
    assert run.verdict.verdict in ("not-detected", "inconclusive")
    assert 0.1 < run.verdict.mean < 0.95
