"""DeepSeek's API: thinking off, whole persisted units, where the text begins stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvphase.errors import RuntimeFault
from kvphase.runtimes.adapters import Choice
from runtimes.toys import PADS, Recorder, answered, measured, same, tokenizer

if TYPE_CHECKING:
    from pathlib import Path


def test_thinking_is_off_and_the_path_has_no_version(tmp_path: Path) -> None:
    recorder = Recorder()
    named = Choice(tokenizer=tokenizer(tmp_path, template=True))
    measured("deepseek", answered, choice=named, recorder=recorder)
    asked = [body for body in recorder.bodies("/chat/completions") if body]
    assert {body["thinking"]["type"] for body in asked} == {"disabled"}
    assert {body["top_logprobs"] for body in asked} == {20}


def test_the_third_question_on_a_prefix_finds_it(tmp_path: Path) -> None:
    named = Choice(tokenizer=tokenizer(tmp_path, template=True))
    replies = measured("deepseek", answered, choice=named)
    longest = replies[-3:]
    assert [reply.cached for reply in longest] == [0, 0, 1 + PADS[-1] + 12]


def test_positions_are_never_absolute(tmp_path: Path) -> None:
    """The count agrees with the template, and yet nobody has seen where the text begins."""
    for template in (True, False):
        named = Choice(tokenizer=tokenizer(tmp_path, template=template))
        runtime = measured("deepseek", same, choice=named)
        assert not runtime.limits.offset_known
        assert runtime.about.runtime == "DeepSeek API"


def test_a_prompt_that_is_cut_stops_the_run(tmp_path: Path) -> None:
    named = Choice(tokenizer=tokenizer(tmp_path, template=True))
    with pytest.raises(RuntimeFault, match="evaluated 30 tokens"):
        measured("deepseek", answered, choice=named, faults="cut=30")
