"""Does an answer change while another request is under way?

Reports behind it: one slot's restore that zeroes every slot's entries, answers that differ with
concurrency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.causes.base import Cause, Finding, Price
from kvphase.causes.flips import beside_screen, flips_between
from kvphase.causes.scene import ALIGNED, QUESTIONS
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "Clear answers differ beside another request, more than repeats do."
SMALLEST = 0.25
LEAST = 0.05
NAME = "batch"


def company(scene: Scene) -> Message | None:
    """A second slot, or an endpoint whose questions are sent several at a time."""
    return None if _arm(scene) is not None else message("diagnose.needs.together")


def _arm(scene: Scene) -> Arm | None:
    if Arm.TOGETHER in scene.limits.controls:
        return Arm.TOGETHER
    # Usual questions go beside others there, so the other way is alone.
    return Arm.ALONE if scene.limits.concurrency > 1 else None


def test(scene: Scene) -> Flow[Finding]:
    """Every base question as usual, again, and beside another request (or alone)."""
    arm = _arm(scene)
    if arm is None:
        raise AssertionError("asked for only where there can be company")
    return flips_between(scene.looks(), NAME, beside_screen(arm), SMALLEST, LEAST)


PRICE = Price(4 * QUESTIONS, 2 * len(ALIGNED) + QUESTIONS // 8)
CAUSE = Cause(NAME, test, SMALLEST, LEAST, PRICE, (company,))
