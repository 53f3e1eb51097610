"""Ollama: its own vocabulary, raw prompts, nothing loaded unasked, cuts seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvphase.errors import RuntimeFault, UsageError
from kvphase.runtimes.adapters import Choice
from kvphase.tokens import survey
from runtimes.toys import Recorder, answered, measured, same, tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.types import Runtime


def test_what_it_is_is_read_from_what_is_loaded() -> None:
    runtime = measured("ollama", same)
    about, limits = runtime.about, runtime.limits
    assert (about.runtime, about.build, about.model) == ("Ollama", "0.20.0", "toy:full")
    assert about.quant == "F16"
    assert (limits.context_tokens, limits.ids, limits.cache_report) == (4096, False, False)


def test_prompts_go_raw_and_change_no_setting() -> None:
    recorder = Recorder()
    replies = measured("ollama", answered, recorder=recorder)
    assert {reply.cached for reply in replies} == {None}
    asked = recorder.bodies("/api/generate")
    assert len(asked) == 1 + len(replies)
    for body in asked:
        assert body["raw"] is True
        assert body["model"] == "toy:full"
        assert "num_ctx" not in body["options"]
        assert "keep_alive" not in body
        assert not body["prompt"].startswith("<s>")
    paths = {path for path, _ in recorder.calls}
    assert paths <= {
        "/health", "/props", "/v1/models", "/model_info", "/get_model_info",
        "/api/version", "/api/ps", "/api/show", "/api/generate",
    }  # fmt: skip


@pytest.mark.parametrize("named", [None, "llama3"])
def test_nothing_is_loaded_unasked(named: str | None) -> None:
    recorder = Recorder({"/api/ps": {"models": []}})
    with pytest.raises(UsageError, match="loads none unasked"):
        measured("ollama", same, choice=Choice(model=named), recorder=recorder)
    assert not recorder.bodies("/api/generate")
    assert not recorder.bodies("/api/show")


def test_one_of_several_loaded_models_must_be_named() -> None:
    loaded: list[dict[str, Any]] = [{"model": "toy:full", "context_length": 4096}]
    recorder = Recorder({"/api/ps": {"models": [*loaded, {"model": "llama3:latest"}]}})
    with pytest.raises(UsageError, match=r"2 models .* toy:full, llama3:latest"):
        measured("ollama", same, recorder=recorder)
    runtime = measured("ollama", same, choice=Choice(model="toy:full"), recorder=recorder)
    assert runtime.about.model == "toy:full"


def test_the_vocabulary_is_the_toys_own() -> None:
    async def digest(runtime: Runtime) -> str:
        return (await survey(runtime.tokenize)).digest

    assert measured("ollama", digest) == measured("llama-server", digest)


def test_vocabulary_of_an_unknown_kind_needs_a_tokenizer(tmp_path: Path) -> None:
    info = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "new",
        "tokenizer.ggml.tokens": ["a"],
    }
    recorder = Recorder({"/api/show": {"model_info": info}})
    with pytest.raises(UsageError, match=r"'new'.*give the model's tokenizer\.json"):
        measured("ollama", same, recorder=recorder)
    named = Choice(tokenizer=tokenizer(tmp_path))
    runtime = measured("ollama", same, choice=named, recorder=recorder)
    assert runtime.limits.tokenizer == "tokenizer.json"


def test_a_prompt_that_is_cut_stops_the_run() -> None:
    with pytest.raises(RuntimeFault, match=r"evaluated 30 tokens of a prompt of \d+, so it cut"):
        measured("ollama", answered, faults="cut=30")


def test_another_model_after_a_restart_stops_the_run() -> None:
    with pytest.raises(RuntimeFault, match=r"another model|not found"):
        measured("ollama", answered, faults="restart=3")
