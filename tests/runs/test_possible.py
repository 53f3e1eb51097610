"""What an endpoint cannot do is left out of a run, and said with its verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import FakeRuntime
from kvphase.errors import UsageError
from kvphase.runs.possible import notes_of, possible
from kvphase.runs.settings import Settings
from kvphase.runtimes.adapters import Choice
from kvphase.types import Limits

FINE = {"lost_prefix": 0, "offset_known": True, "counted": True, "cold": True}


def test_cold_questions_are_left_out_where_no_cache_can_be_bypassed() -> None:
    able, unable = FakeRuntime(), FakeRuntime(limits=Limits(4096, cold=False))
    frozen = ({"kind": "insequence", "cold": 8}, {"kind": "flip"})
    settings = Settings(frozen=frozen)
    assert possible(settings, able) == settings
    changed = possible(settings, unable)
    assert changed.cold == 0
    assert changed.frozen == ({"kind": "insequence", "cold": 0}, {"kind": "flip"})
    with pytest.raises(UsageError, match="leave --cold out"):
        possible(Settings(cold=5), unable)
    assert possible(Settings(cold=5), able).cold == 5


def test_an_endpoint_with_a_template_of_its_own_is_a_chat() -> None:
    plain = FakeRuntime()
    chat = FakeRuntime(about=replace(plain.about, template="unknown"))
    assert not possible(Settings(), plain).chat
    assert possible(Settings(), chat).chat


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ({}, None),
        ({"lost_prefix": 2}, None),
        ({"lost_prefix": 5}, None),
        ({"lost_prefix": 6}, "note.lost-prefix"),
        ({"offset_known": False}, "note.rotation"),
        ({"offset_known": False, "counted": False}, "note.uncounted"),
        ({"cold": False}, "note.no-cold"),
    ],
)
def test_a_verdict_says_what_its_endpoint_could_not_do(
    told: dict[str, object], key: str | None
) -> None:
    notes = notes_of({"endpoint": {**FINE, **told}}, asked=100)
    assert [getattr(note, "key", None) for note in notes] == ([] if key is None else [key])


def test_older_runs_say_nothing() -> None:
    assert notes_of({}, asked=100) == ()


def test_a_resumed_run_keeps_kind_and_model_and_no_path() -> None:
    first = Choice("openai", "/home/someone/big.gguf", "/home/someone/tokenizer.json")
    kept = first.as_json()
    assert kept == {"runtime": "openai", "model": "big.gguf", "tokenizer": "FILE"}
    again = Choice(tokenizer="elsewhere.json").like(kept)
    assert (again.runtime, again.model, again.tokenizer) == ("openai", "big.gguf", "elsewhere.json")
    with pytest.raises(UsageError, match="--tokenizer"):
        Choice().like(kept)
    with pytest.raises(UsageError, match="made with --runtime openai"):
        Choice("vllm", tokenizer="t").like(kept)
    assert Choice("vllm").like({}) == Choice("vllm")
