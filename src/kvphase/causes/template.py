"""Are answers right more or less often inside the chat template than in raw text?

A real effect of many models, and of harnesses that leave the template out. Report behind it: 51 to
21 by nothing but switching the template on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.causes import needs
from kvphase.causes.base import Cause, Finding, Price
from kvphase.causes.flips import rows
from kvphase.causes.right import Losses, loss_finding
from kvphase.causes.scene import ALIGNED, MODULUS, QUESTIONS, otherwise
from kvphase.probes.needle import CHAT_TOKENS
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "The same questions are right more or less often inside the chat template."
SMALLEST = 0.35
LEAST = 0.10
NAME = "template"
CHAT = 1
"""Pad that marks a question in chat."""


def test(scene: Scene) -> Flow[Finding]:
    """Every base question raw and in chat, thinking off."""
    if scene.template is None:
        raise AssertionError("asked for only where there is a template")
    seen = Losses()
    # The template's own tokens must not move the question to another residue.
    more = -(len(scene.template.head) + len(scene.template.tail)) % MODULUS
    for raw in scene.base():
        size = len(raw.asks[0].prompt) + more
        content = scene.content(raw.asks[0].context, size, scene.template)
        chat = [otherwise(ask, Arm.SCREEN, mark=CHAT) for ask in content.asks]
        answers = yield scene.fair([*raw.asks, *chat])
        seen.add(rows(answers, Arm.SCREEN, 0), rows(answers, Arm.SCREEN, CHAT))
    return loss_finding(NAME, seen, LEAST, both_ways=True)


PRICE = Price(2 * QUESTIONS, 2 * len(ALIGNED), CHAT_TOKENS)
CAUSE = Cause(NAME, test, SMALLEST, LEAST, PRICE, (needs.template,))
