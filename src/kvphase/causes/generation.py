"""Do long answers run into loops or break off at once?

The sign of a collapsed quantisation, and of nothing that a needle shows. Small models loop by
themselves when they decode greedily. Report behind it: loops on a frozen prompt on three stacks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.causes import needs
from kvphase.causes.base import LEVEL, Cause, Finding, Price
from kvphase.causes.exact import binomial_p
from kvphase.causes.flips import seen_from
from kvphase.causes.talk import STORIES, STORY_TOKENS

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "Of long answers to plain requests, many end in a loop or at once."
TOLERATED = 0.05
SMALLEST = 0.75
LEAST = 0.20
SHORTEST = 20
"""Characters below which an answer to a request for several paragraphs broke off."""
_LOOP = re.compile(r"(.{1,80}?)\1{3,}.{0,80}$", re.DOTALL)
"""A piece of text four times in a row or more, up to the end or nearly so."""
_LEAST_LOOP = 24
"""Characters that the repetitions span at least: a row of dots is none."""
NAME = "generation"


def test(scene: Scene) -> Flow[Finding]:
    """The number of broken answers is binomial where one in twenty is tolerated."""
    if scene.talk is None:
        raise AssertionError("asked for only where requests can be rendered")
    answers = yield scene.talk.stories
    texts = [str(text) for text in answers.text]
    loops, cut = sum(map(loops_in, texts)), sum(len(text.strip()) < SHORTEST for text in texts)
    n = len(texts)
    p = binomial_p(loops + cut, n, TOLERATED)
    share = (loops + cut) / max(1, n)
    found = p <= LEVEL and share >= LEAST
    return Finding(
        cause=NAME,
        status="found" if found else "not-found",
        evidence=message(
            "diagnose.generation", loops=loops, cut=cut, n=n, tokens=STORY_TOKENS, p=p
        ),
        would_have_seen=seen_from(SMALLEST, "broken"),
        p_value=p,
        effect_pp=100 * share,
        n=n,
    )


def loops_in(text: str) -> bool:
    """Whether ``text`` ends in a piece of itself, over and over."""
    tail = text.strip()[-400:]
    found = _LOOP.search(tail)
    return found is not None and len(found[0]) >= _LEAST_LOOP


CAUSE = Cause(
    NAME,
    test,
    SMALLEST,
    LEAST,
    Price(STORIES, STORIES // 8, STORY_TOKENS),
    (needs.talk,),
)
