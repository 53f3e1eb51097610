"""mlx_lm.server: known by its fingerprint; the model it was started with, a named tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvphase.errors import UsageError
from kvphase.runtimes.adapters import Choice
from runtimes.toys import Recorder, answered, measured, same, tokenizer

if TYPE_CHECKING:
    from pathlib import Path


def test_the_model_it_was_started_with_is_asked(tmp_path: Path) -> None:
    recorder = Recorder()
    named = Choice(tokenizer=tokenizer(tmp_path))
    replies = measured("mlx", answered, choice=named, recorder=recorder)
    asked = [body for body in recorder.bodies("/v1/completions") if body]
    assert {body["model"] for body in asked} == {"default_model"}
    assert all(isinstance(body.get("logprobs", False), bool) for body in asked)
    assert all(reply.margin is not None for reply in replies)
    assert [reply.cached for reply in replies[1:3]] == [16, 16]


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    runtime = measured("mlx", same, choice=Choice(tokenizer=tokenizer(tmp_path)))
    about, limits = runtime.about, runtime.limits
    assert (about.runtime, about.build) == ("mlx_lm.server", "0.31.2-0.32.4")
    assert about.model == "toy:full"
    assert "assumed" in about.extra["context"]
    assert (limits.ids, limits.top_logprobs, limits.cache_report) == (False, 10, True)


def test_a_tokenizer_must_be_named() -> None:
    with pytest.raises(UsageError, match="--tokenizer"):
        measured("mlx", same)


def test_a_server_without_the_fingerprint_is_another(tmp_path: Path) -> None:
    """The same list without owners, but an answer of somebody else."""
    named = Choice(tokenizer=tokenizer(tmp_path))
    other = Recorder({"/health": {"status": "fine"}})
    runtime = measured("mlx", same, choice=named, recorder=other)
    assert runtime.about.runtime == "OpenAI completions"
