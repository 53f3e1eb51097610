"""Which of the listed next tokens is the answer."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import pytest

from kvphase.runtimes.scores import Score, Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS = {" Kevin": 1, "Kevin": 2, " James": 3, " ": 4, "4": 5}


async def tokenize(texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
    """Known words as one token, all else character by character."""
    del special
    return [[WORDS[text]] if text in WORDS else [100 + ord(c) for c in text] for text in texts]


def score(text: str, *scores: tuple[str, float], bare: bool = True, ids: bool = False) -> object:
    listed = [Score(one, value, WORDS[one] if ids else None) for one, value in scores]
    return asyncio.run(Scorer(tokenize, bare=bare).score(listed, text))


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("asked", ["Kevin", " Kevin"])
def test_a_chat_may_answer_with_or_without_the_space(asked: str, ids: bool) -> None:
    spaced, plain, other = (" Kevin", -0.5), ("Kevin", -1.5), (" James", -2.0)
    assert score(asked, spaced, other, ids=ids) == -0.5
    assert score(asked, plain, other, ids=ids) == -1.5
    assert score(asked, spaced, plain, ids=ids) == -0.5
    assert score(asked, ("Kevin", -0.2), (" Kevin", -3.0), ids=ids) == -0.2
    assert score(asked, other, ids=ids) == -math.inf
    assert score(asked) is None


def test_a_mere_space_is_no_answer() -> None:
    assert score("42", (" ", -0.1), ("4", -2.5)) == -2.5
    assert score("42", (" ", -0.1)) is None
    assert score("", (" ", -0.1)) is None


def test_a_completion_is_spelled_as_it_goes_on() -> None:
    assert score(" Kevin", (" Kevin", -0.5), ("Kevin", -0.1), bare=False) == -0.5
    assert score("Kevin", (" Kevin", -0.5), bare=False) == -math.inf
