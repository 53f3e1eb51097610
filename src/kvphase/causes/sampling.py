"""Do the endpoint's own sampling settings lose answers that greedy decoding has right?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.causes import needs
from kvphase.causes.base import Cause, Exhibit, Finding, Price
from kvphase.causes.flips import by_content, rows
from kvphase.causes.right import Losses, loss_finding
from kvphase.causes.scene import ALIGNED, QUESTIONS, otherwise
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "Questions answered right greedily are answered wrong with the endpoint's defaults."
SMALLEST = 0.30
LEAST = 0.05
NAME = "sampling"


def test(scene: Scene) -> Flow[Finding]:
    """Every base question greedily and with the defaults, on the same cached prefix."""
    seen = Losses()
    exhibits: list[Exhibit] = []
    early = False
    for asks in scene.looks():
        answers = yield by_content(asks, lambda ask: ask, lambda ask: otherwise(ask, Arm.SAMPLED))
        greedy, drawn = rows(answers, Arm.SCREEN), rows(answers, Arm.SAMPLED)
        before = len(seen.lost)
        seen.add(greedy, drawn)
        by_key = {(ask.context, ask.item): ask for ask in asks}
        for key in seen.lost[before:]:
            texts = (greedy[key].text, drawn[key].text)
            exhibits.append(Exhibit(by_key[key], otherwise(by_key[key], Arm.SAMPLED), texts))
        early = not seen.lost
        if early:
            break
    sight = SMALLEST if early else None
    return loss_finding(NAME, seen, LEAST, sight, exhibits=exhibits)


PRICE = Price(2 * QUESTIONS, 2 * len(ALIGNED))
CAUSE = Cause(NAME, test, SMALLEST, LEAST, PRICE, (needs.control(Arm.SAMPLED),))
