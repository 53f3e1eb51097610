"""Is an instruction followed less often in one place than in another?

The same order in the system prompt, in the middle and at the end; and an older order against a
newer one that contradicts it. A property of the model, told so that it is not taken for phase.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.causes import needs
from kvphase.causes.base import LEVEL, POWER, Cause, Finding, Price
from kvphase.causes.exact import detectable, sign_p
from kvphase.causes.flips import seen_from
from kvphase.causes.talk import ORDER_TOKENS, ORDERS, PLACES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.causes.scene import Scene
    from kvphase.types import Answers, Ask, Flow

PREDICTION = (
    "An order is followed more often in one of three places, or an older one rather than a newer."
)
SMALLEST = 0.65
LEAST = 0.20
_TESTS = 7
"""Three pairs of places in two directions, and the older order."""
NAME = "instructions"


def test(scene: Scene) -> Flow[Finding]:
    """Exact paired tests of each two places, and of older against newer."""
    if scene.talk is None:
        raise AssertionError("asked for only where requests can be rendered")
    answers = yield scene.talk.orders
    followed = np.array([_followed(answers, place) for place in range(len(PLACES))])
    newer = _newer(answers, scene.talk.orders)
    p = sign_p(int(followed[3].sum()), int(newer.sum()))
    effect = float(followed[3].mean() - newer.mean())
    for one, two in combinations(range(3), 2):
        only = (
            int((followed[one] > followed[two]).sum()),
            int((followed[one] < followed[two]).sum()),
        )
        this = sign_p(max(only), min(only))
        if this < p:
            p, effect = this, abs(only[0] - only[1]) / ORDERS
    p = min(1.0, _TESTS * p)
    found = p <= LEVEL and effect >= LEAST
    rates = [100 * float(one.mean()) for one in followed]
    return Finding(
        cause=NAME,
        status="found" if found else "not-found",
        evidence=message(
            "diagnose.instructions",
            system=rates[0],
            middle=rates[1],
            end=rates[2],
            older=rates[3],
            newer=100 * float(newer.mean()),
            n=ORDERS,
            p=p,
        ),
        would_have_seen=seen_from(detectable(ORDERS, 0.0, POWER, LEVEL / _TESTS), "loss"),
        p_value=p,
        effect_pp=100 * effect,
        n=len(answers),
    )


def _followed(answers: Answers, place: int) -> NDArray[np.bool_]:
    """Whether each order of this place was followed, shape (ORDERS,)."""
    here = answers.where(answers.pad == place)
    said = np.zeros(ORDERS, bool)
    said[here.item] = here.correct == 1
    return said


def _newer(answers: Answers, orders: Sequence[Ask]) -> NDArray[np.bool_]:
    """Whether the newer of two orders was followed, shape (ORDERS,)."""
    place = PLACES.index("older")
    here = answers.where(answers.pad == place)
    texts = dict(zip(here.item.tolist(), here.text.tolist(), strict=True))
    said = np.zeros(ORDERS, bool)
    for ask in orders:
        if ask.pad == place:
            answer = str(texts.get(ask.item, "")).strip(" \n\"'.").lower()
            said[ask.item] = answer.startswith(ask.candidates[1].lower())
    return said


CAUSE = Cause(
    NAME,
    test,
    SMALLEST,
    LEAST,
    # A request of some hundred tokens, each evaluated from its start: a fifth of a content.
    Price(ORDERS * len(PLACES), ORDERS * len(PLACES) // 5, ORDER_TOKENS),
    (needs.talk,),
)
