"""Which tests fit into what is left of the budget, and how far the screen goes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.causes.phase import CAUSE as PHASE
from kvphase.causes.phase import CONTEXTS
from kvphase.causes.scene import RECORDS
from kvphase.runs.estimate import Cost, cost, fits, room

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.causes.base import Cause
    from kvphase.causes.scene import Scene
    from kvphase.runs.budget import Meter
    from kvphase.runs.estimate import Rate

TOYS = 160
"""Contexts of a toy's screen: it is asked in seconds, and its phase is a weak one. Cold questions
take too long for that even on a toy."""
FEWEST = 20
"""Contexts below which no phase is sought."""
SHARE = 0.5
"""Of what is left: a test before the screen may take so much; half is kept for phase."""


def shortage(cause: Cause, scene: Scene, rate: Rate, meter: Meter) -> Message | None:
    """What a test lacks in time, tokens or money; None if it fits."""
    price = _price(cause, scene, rate)
    if fits(price, meter.left(), 1.0 if cause.name == "precision" else SHARE):
        return None
    return message("diagnose.needs.budget", minutes=math.ceil(price.seconds / 60 / SHARE) + 1)


def contexts_for(scene: Scene, rate: Rate, meter: Meter, most: int | None = None) -> int:
    """Contexts of the screen that fit, shifted contents included; 0 if too few do."""
    if most is None:
        most = TOYS if scene.about.toy and not scene.fresh else CONTEXTS
    holds = room(_screen(scene, rate, most), meter.left())
    if holds >= 1.0:
        return most
    fitting = int(most * holds) // 4 * 4
    return fitting if fitting >= FEWEST else 0


def _price(cause: Cause, scene: Scene, rate: Rate) -> Cost:
    if cause.name == PHASE.name:
        return _screen(scene, rate, FEWEST)
    asked = cause.price
    price = cost(
        rate,
        shared=asked.prefills,
        whole=0,
        length=_length(scene),
        questions=asked.questions * asked.tokens,
        suffix=scene.design.question,
    )
    return price


def _screen(scene: Scene, rate: Rate, contexts: int) -> Cost:
    """Of the screen and of half as many shifted contexts; cold where the cache is not trusted."""
    prefills = contexts + contexts // 2
    cold = scene.fresh
    return cost(
        rate,
        shared=0 if cold else prefills,
        whole=prefills * RECORDS if cold else 0,
        length=scene.design.context_tokens,
        questions=0 if cold else prefills * RECORDS,
        suffix=scene.design.question,
    )


def _length(scene: Scene) -> int:
    """Tokens of a base content's prompt."""
    return max(len(content.asks[0].prompt) for content in scene.base())


__all__ = ["contexts_for", "shortage"]
