"""Does the next token change when those before it were generated instead of given?

What a model writes enters its cache one token at a time, what it is given several at once: both
must leave the same behind. Drafts of speculative decoding are checked in the same way. Reports
behind it: words cut while decoding, an overlap lane dropped at decode, drafts that damage the
compressor's ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.causes import needs
from kvphase.causes.base import Cause, Finding, Price
from kvphase.causes.flips import Ways, flips_between
from kvphase.causes.scene import ALIGNED, QUESTIONS, otherwise
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = (
    "The last of several answer tokens differs between generating those before it and giving "
    "them, more than giving them twice does."
)
SMALLEST = 0.25
LEAST = 0.05
TOKENS = 5
"""Answer tokens; drafts of speculative decoding take part from the third on at the latest."""
NAME = "decode"
WAYS = Ways(
    usual=lambda ask: otherwise(ask, Arm.DECODE, generate=TOKENS),
    control=lambda ask: otherwise(ask, Arm.DECODE, generate=TOKENS, mark=1),
    other=lambda ask: otherwise(ask, Arm.SCREEN, generate=TOKENS),
)


def test(scene: Scene) -> Flow[Finding]:
    """Every base question with its answer's first tokens given, given again, and generated."""
    looks = [scene.fair(asks) for asks in scene.looks()]
    return flips_between(looks, NAME, WAYS, SMALLEST, LEAST)


PRICE = Price(7 * QUESTIONS, 2 * len(ALIGNED), TOKENS)
CAUSE = Cause(NAME, test, SMALLEST, LEAST, PRICE, (needs.control(Arm.DECODE),))
