"""Does an answer change when its prefix was prefilled in two pieces instead of one?

The pieces meet inside the target's record, in the middle of a group of four tokens; the prefix
ends at a group's edge. Asked before the cache: behind most cached prefixes a prefill goes on inside
a group too.
Reports behind it: only `<` once a prompt spans more than one pass; an indexer that sees the last
chunk only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.causes import needs
from kvphase.causes.base import Cause, Finding, Price
from kvphase.causes.flips import beside_screen, flips_between
from kvphase.causes.scene import ALIGNED, QUESTIONS
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = (
    "Clear answers differ between a prefix prefilled at once and one grown in two pieces, "
    "more than repeats do."
)
SMALLEST = 0.25
LEAST = 0.05
NAME = "split"


def test(scene: Scene) -> Flow[Finding]:
    """Every base question on its cached prefix, again, and on one grown in two pieces."""
    return flips_between(scene.looks(), NAME, beside_screen(Arm.SPLIT), SMALLEST, LEAST)


PRICE = Price(3 * QUESTIONS, 2 * len(ALIGNED) + QUESTIONS)
CAUSE = Cause(NAME, test, SMALLEST, LEAST, PRICE, (needs.control(Arm.SPLIT),))
