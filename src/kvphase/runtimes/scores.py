"""Log-probabilities of the next token, as servers list them, and what an answer's are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.errors import TransientFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.tokens import Tokenize
    from kvphase.types import Ask

LEAD = "a"
"""Stands before a text whose ids are wanted: some tokenizers put a space before every text."""
LEAST = -9000.0
"""Servers whose JSON cannot hold minus infinity say -9999 instead."""


@dataclass(frozen=True, slots=True)
class Score:
    """One possible next token."""

    text: str
    logprob: float
    """Natural; minus infinity where the server says that it is impossible."""
    id: int | None = None


def ranked(scores: Sequence[Score]) -> tuple[Score, ...]:
    """The same, best first."""
    return tuple(sorted(scores, key=lambda score: -score.logprob))


def value(logprob: float | None) -> float:
    """A log-probability as servers write it: JSON has no infinity, null and -9999 mean it."""
    return -math.inf if logprob is None or logprob < LEAST else logprob


def margin(scores: Sequence[Score]) -> float | None:
    """Log-probability of the best token minus that of the second; None with fewer than two."""
    return scores[0].logprob - scores[1].logprob if len(scores) > 1 else None


def exact(scores: Sequence[Score], text: str) -> float | None:
    """Log-probability of the token that spells ``text``; None if it is not among the scores."""
    return next((score.logprob for score in scores if score.text == text), None)


def beginning(scores: Sequence[Score], text: str) -> float | None:
    """Of the longest token that ``text`` begins with and goes beyond; None without one."""
    starts = [s for s in scores if s.text and s.text != text and text.startswith(s.text)]
    longest = max(starts, key=lambda score: len(score.text), default=None)
    return None if longest is None else longest.logprob


class Scorer:
    """Finds an answer among the scores; asks the tokenizer once for each text."""

    def __init__(self, tokenize: Tokenize, *, bare: bool = False) -> None:
        """Use the tokenizer of the model that is scored.

        Args:
            tokenize: Ids of texts.
            bare: Answers begin a text of their own, as in a chat: mostly without their leading
                space. The likelier spelling counts.
        """
        self._tokenize = tokenize
        self._bare = bare
        self._known: dict[str, tuple[int, ...]] = {}
        self._single: dict[str, bool] = {}

    async def of(self, ask: Ask, scores: Sequence[Score]) -> tuple[float | None, float | None]:
        """Log-probability of the expected answer, and of the tempting wrong one if there is one."""
        tempting = ask.candidates[1] if len(ask.candidates) > 1 else None
        expected = await self.score(scores, ask.expected)
        return expected, None if tempting is None else await self.score(scores, tempting)

    async def score(self, scores: Sequence[Score], text: str) -> float | None:
        """Of ``text`` as the next token, -inf if it was censored; None without scores.

        A text of several tokens has the score of the token that it begins with, or none.
        """
        bare = text.lstrip()
        if not (self._bare and bare):
            return await self._spelled(scores, text)
        # A mere space may be the first token of any answer: it says nothing of this one.
        telling = [score for score in scores if not score.text or score.text.strip()]
        found = [
            await self._spelled(scores, bare),
            await self._spelled(telling, f" {bare}"),
        ]
        return max((one for one in found if one is not None), default=None)

    async def _spelled(self, scores: Sequence[Score], text: str) -> float | None:
        """Of ``text`` spelled just so."""
        if not scores:
            return None
        if scores[0].id is not None:
            return await self._by_id(scores, text)
        found = exact(scores, text)
        if found is not None:
            return found
        return -math.inf if await self._is_token(text) else beginning(scores, text)

    async def _by_id(self, scores: Sequence[Score], text: str) -> float | None:
        ids = await self.ids(text)
        if not ids:
            return None
        found = next((score.logprob for score in scores if score.id == ids[0]), None)
        return -math.inf if found is None else found

    async def _is_token(self, text: str) -> bool:
        """Whether ``text`` is one token; True if the tokenizer does not say now."""
        if text not in self._single:
            try:
                self._single[text] = len((await self._tokenize([text]))[0]) == 1
            except TransientFault:
                return True  # an answer that was paid for is not thrown away for this
        return self._single[text]

    async def ids(self, text: str) -> tuple[int, ...]:
        """The tokens of ``text`` as an answer; empty if they merge with what stands before."""
        if text not in self._known:
            before = "" if self._bare else LEAD
            lead, whole = await self._tokenize([before, before + text])
            size = len(lead)
            self._known[text] = tuple(whole[size:]) if whole[:size] == lead else ()
        return self._known[text]
