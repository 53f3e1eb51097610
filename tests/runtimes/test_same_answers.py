"""The same questions through every dialect: token for token what llama-server's answers are."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from kvphase.runtimes.adapters import Choice
from kvphase.testing import DIALECTS
from runtimes.toys import answered, measured, same, tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.types import Reply

OWN = ("llama-server", "vllm", "sglang", "ollama")
"""Servers that show their tokenizer or vocabulary."""
CHATS = ("ds4", "deepseek", "chat")
UNSCORED = ("lmstudio", "ds4")
KINDS = {
    "llama-server": "llama-server",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "mlx": "mlx_lm.server",
    "ds4": "ds4-server",
    "deepseek": "DeepSeek API",
    "openai": "OpenAI completions",
    "chat": "OpenAI chat",
}


def choice(dialect: str, folder: Path) -> Choice:
    """What a user has to name: the tokenizer, where the server shows none."""
    if dialect in OWN:
        return Choice()
    return Choice(tokenizer=tokenizer(folder, template=dialect in CHATS))


@functools.cache
def reference() -> tuple[Reply, ...]:
    return tuple(measured("llama-server", answered))


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "llama-server"])
def test_answers_are_the_same(dialect: str, tmp_path: Path) -> None:
    there = reference()
    replies = measured(dialect, answered, choice=choice(dialect, tmp_path))
    for one, other in zip(replies, there, strict=True):
        first = one.text[: len(other.text)]  # chats ask for more tokens than one
        assert first == other.text
        if dialect not in UNSCORED:
            assert one.margin == pytest.approx(other.margin, abs=1e-12)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_known_by_what_it_says(dialect: str, tmp_path: Path) -> None:
    runtime = measured(dialect, same, choice=choice(dialect, tmp_path))
    assert runtime.about.runtime == KINDS[dialect]
    assert runtime.about.model == "toy:full"
    assert runtime.limits.bos == (0,)
    assert runtime.limits.counted
    assert runtime.limits.offset_known == (dialect != "deepseek")
