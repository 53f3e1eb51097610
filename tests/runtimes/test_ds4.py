"""ds4-server: chats without thinking, counted with DeepSeek-V4's packaged tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvphase.errors import RuntimeFault, UsageError
from kvphase.runtimes.adapters import Choice
from kvphase.tokens.local import deepseek
from runtimes.toys import Recorder, answered, measured, same, tokenizer

if TYPE_CHECKING:
    from pathlib import Path


def test_thinking_is_switched_off_and_hits_are_read(tmp_path: Path) -> None:
    recorder = Recorder()
    named = Choice(tokenizer=tokenizer(tmp_path, template=True))
    replies = measured("ds4", answered, choice=named, recorder=recorder)
    asked = [body for body in recorder.bodies("/v1/chat/completions") if body]
    assert {body["think"] for body in asked} == {False}
    assert all(len(body["messages"]) == 1 for body in asked)
    assert [reply.cached for reply in replies[1:3]] == [16, 16]
    assert all(reply.logprob is None for reply in replies)


def test_positions_are_absolute_only_where_the_template_is_known(tmp_path: Path) -> None:
    known = measured("ds4", same, choice=Choice(tokenizer=tokenizer(tmp_path, template=True)))
    assert (known.limits.offset_known, known.limits.bos) == (True, (0,))
    assert known.about.runtime == "ds4-server"
    bare = measured("ds4", same, choice=Choice(tokenizer=str(tmp_path / "tokenizer.json")))
    assert (bare.limits.offset_known, bare.limits.bos) == (False, ())


def test_the_packaged_tokenizer_counts_unless_another_is_named() -> None:
    """The toy counts otherwise, which the server's own figures show at once."""
    runtime = measured("ds4", same)
    assert runtime.limits.tokenizer == "DeepSeek-V4 (packaged)"
    assert not runtime.limits.offset_known


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepseek, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'kvphase\[deepseek\]'"):
        measured("ds4", same)


def test_a_prompt_that_is_cut_stops_the_run(tmp_path: Path) -> None:
    named = Choice(tokenizer=tokenizer(tmp_path, template=True))
    with pytest.raises(RuntimeFault, match="evaluated 30 tokens"):
        measured("ds4", answered, choice=named, faults="cut=30")
