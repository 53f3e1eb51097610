"""LM Studio: only what is loaded, with the context that it was loaded with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvphase.errors import RuntimeFault, UsageError
from kvphase.runtimes.adapters import Choice
from runtimes.toys import Recorder, answered, measured, same, tokenizer

if TYPE_CHECKING:
    from pathlib import Path


def test_the_loaded_model_is_taken_though_others_are_listed(tmp_path: Path) -> None:
    recorder = Recorder()
    named = Choice(tokenizer=tokenizer(tmp_path))
    runtime = measured("lmstudio", same, choice=named, recorder=recorder)
    about, limits = runtime.about, runtime.limits
    assert (about.runtime, about.model, about.quant) == ("LM Studio", "toy:full", "F16")
    assert (limits.context_tokens, limits.ids, limits.top_logprobs) == (4096, False, 0)
    assert not limits.cache_report
    assert {body["model"] for body in recorder.bodies("/v1/completions") if body} == {"toy:full"}


def test_a_model_that_is_not_loaded_is_refused(tmp_path: Path) -> None:
    recorder = Recorder()
    named = Choice(tokenizer=tokenizer(tmp_path), model="toy-that-is-not-loaded")
    with pytest.raises(UsageError, match=r"not loaded.*\(loaded now: toy:full\)|not loaded"):
        measured("lmstudio", same, choice=named, recorder=recorder)
    assert not [body for body in recorder.bodies("/v1/completions") if body]


def test_a_tokenizer_must_be_named() -> None:
    with pytest.raises(UsageError, match="--tokenizer"):
        measured("lmstudio", same)


def test_a_prompt_that_is_cut_stops_the_run(tmp_path: Path) -> None:
    named = Choice(tokenizer=tokenizer(tmp_path))
    with pytest.raises(RuntimeFault, match="evaluated 30 tokens"):
        measured("lmstudio", answered, choice=named, faults="cut=30")
