"""The JSON of OpenAI's completions and chat APIs, as servers of many kinds send it.

Whole answers and streamed ones, both shapes of log-probabilities, and the three places where
servers say how much of a prompt came from their cache. Only the fields that kvphase uses are
checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from kvphase.catalogue import message
from kvphase.errors import TransientFault
from kvphase.runtimes.scores import Score, ranked, value
from kvphase.runtimes.served import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Chunk", "answer_of", "scores_of"]

CUT = "length"
"""``finish_reason`` of an answer that reached its number of tokens."""
BROKEN = ("content_filter", "abort", "error", "insufficient_system_resource")
"""Reasons for which an answer was broken off."""
ID_MARK = "token_id:"
"""What vLLM writes before an id in the place of a token's text."""


class Details(BaseModel):
    """Of the prompt's tokens."""

    cached_tokens: int | None = None


class Usage(BaseModel):
    """What a request took, by the server's count."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cached_tokens: int | None = None  # Moonshot, mlx-lm

    @property
    def cached(self) -> int | None:
        """Prompt tokens from the cache."""
        details = self.prompt_tokens_details
        if details is not None and details.cached_tokens is not None:
            return details.cached_tokens
        hit = self.prompt_cache_hit_tokens
        return self.cached_tokens if hit is None else hit


class Said(BaseModel):
    """A message, or a piece of one."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(BaseModel):
    """One answer, or a piece of one."""

    text: str | None = None
    message: Said | None = None
    delta: Said | None = None
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None
    prompt_token_ids: list[int] | None = None  # vLLM, SGLang

    @property
    def said(self) -> Said:
        """Its text, wherever it stands."""
        return self.message or self.delta or Said(content=self.text)


class Chunk(BaseModel):
    """A whole answer, or one event of a stream."""

    model: str | None = None
    choices: list[Choice] = []
    usage: Usage | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: list[int] | None = None  # vLLM's chat


def answer_of(chunks: Sequence[Chunk]) -> Answer:
    """One answer from a whole body or from the events of a stream.

    Raises:
        TransientFault: it has no end, or no answer in it.
    """
    choices = [choice for chunk in chunks for choice in chunk.choices]
    reason = next((c.finish_reason for c in reversed(choices) if c.finish_reason), None)
    if not choices or reason is None:
        raise TransientFault(message("runtime.stops-early"))
    text = "".join(choice.said.content or "" for choice in choices)
    reasoning = "".join(c.said.reasoning_content or c.said.reasoning or "" for c in choices)
    usage = next((chunk.usage for chunk in reversed(chunks) if chunk.usage), Usage())
    ids = [*(c.prompt_token_ids for c in choices), *(c.prompt_token_ids for c in chunks)]
    shown = next((one for one in ids if one is not None), None)
    return Answer(
        text=text,
        finished=reason not in BROKEN and (bool(text) or not (reasoning and reason == CUT)),
        reasoning=reasoning,
        scores=next((found for c in choices if (found := scores_of(c.logprobs))), ()),
        prompt_tokens=usage.prompt_tokens,
        cached=usage.cached,
        generated=usage.completion_tokens or 0,
        model=next((chunk.model for chunk in chunks if chunk.model), None),
        prompt_ids=None if shown is None else tuple(shown),
    )


def scores_of(logprobs: dict[str, Any] | None) -> tuple[Score, ...]:
    """The likeliest first tokens, best first; empty where there are none.

    Completions list a mapping of texts for each token (``top_logprobs``), chats a list of tokens
    (``content``), each with a list of its rivals.
    """
    if not logprobs:
        return ()
    content = logprobs.get("content")
    if isinstance(content, list) and content and isinstance(content[0], dict):
        listed = content[0].get("top_logprobs") or [content[0]]
        return _listed(listed)
    top = logprobs.get("top_logprobs")
    if isinstance(top, list) and top and isinstance(top[0], dict):
        pairs = [(text, lp) for text, lp in top[0].items() if _is_number(lp)]
        return ranked([_score(text, lp) for text, lp in pairs])
    return ()


def _listed(entries: object) -> tuple[Score, ...]:
    if not isinstance(entries, list):
        return ()
    found = [
        Score(str(entry.get("token", "")), value(entry.get("logprob")), _id(entry.get("id")))
        for entry in entries
        if isinstance(entry, dict) and _is_number(entry.get("logprob"))
    ]
    return ranked(found)


def _score(text: str, logprob: float | None) -> Score:
    """One token; vLLM can name it by its id."""
    number = text.removeprefix(ID_MARK)
    if text.startswith(ID_MARK) and number.isdecimal():
        return Score("", value(logprob), int(number))
    return Score(text, value(logprob))


def _id(number: object) -> int | None:
    """A token's id, which llama.cpp adds to its text."""
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _is_number(logprob: object) -> bool:
    return logprob is None or (isinstance(logprob, (int, float)) and not isinstance(logprob, bool))
