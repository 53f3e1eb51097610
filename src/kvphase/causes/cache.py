"""Does an answer change when its prompt is evaluated from its start instead of from a cache?

Asked over prefixes whose lengths are and are not multiples of 4, 128 and 256, since a cache that
keeps blocks fails at their edges. Reports behind it: gibberish or nothing after a cache hit, right
answers cold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.causes import needs
from kvphase.causes.base import Cause, Finding, Price
from kvphase.causes.flips import beside_screen, flips_between
from kvphase.causes.scene import ALIGNED, RECORDS, UNALIGNED
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "Clear answers differ between a cached prefix and a cold prompt, more than repeats do."
SMALLEST = 0.25
LEAST = 0.05
NAME = "cache"


def test(scene: Scene) -> Flow[Finding]:
    """Every base question on its cached prefix, again, and cold.

    Where a split prefill changes answers, so does every prefix that ends inside a group: only
    prefixes that end at an edge then tell of the cache itself.
    """
    looks = scene.looks(unaligned="split" not in scene.found)
    return flips_between(looks, NAME, beside_screen(Arm.COLD), SMALLEST, LEAST)


_ALL = RECORDS * (len(ALIGNED) + len(UNALIGNED))
PRICE = Price(3 * _ALL, 2 * len(ALIGNED) + _ALL)
CAUSE = Cause(NAME, test, SMALLEST, LEAST, PRICE, (needs.cold,))
