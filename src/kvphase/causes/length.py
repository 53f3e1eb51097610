"""Are answers lost beyond some prompt length, everything behind the filler being the same?

Filler at the very start, a multiple of 256 tokens, leaves every phase and every distance as it is:
only the length and the absolute positions change. Reports behind it: needles 3/3 at 3.6k tokens and
0/3 above 5k, everything broken from a certain token on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.causes.base import Cause, Exhibit, Finding, Price
from kvphase.causes.flips import rows
from kvphase.causes.right import Losses, loss_finding
from kvphase.causes.scene import ALIGNED, FIRST_LOOK, GRAIN, LONGEST, QUESTIONS, padded
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.causes.scene import Content, Scene
    from kvphase.types import Ask, Flow

PREDICTION = "Questions answered right on a short prompt are answered wrong behind more filler."
SMALLEST = 0.35
LEAST = 0.10
SHARES = (0.5, 1.0)
"""Of the room up to the longest prompt: the lengths that are tried."""
NAME = "length"


def heads(scene: Scene) -> list[int]:
    """Filler tokens that are tried, multiples of ``GRAIN``; none where there is no room."""
    longest = min(scene.longest, scene.limits.context_tokens - 1)
    room = longest - max(len(content.asks[0].prompt) for content in scene.base())
    found = (int(room * share) // GRAIN * GRAIN for share in SHARES)
    return sorted({head for head in found if head > 0})


def room(scene: Scene) -> Message | None:
    """Room for a longer prompt."""
    return None if heads(scene) else message("diagnose.needs.room")


def test(scene: Scene) -> Flow[Finding]:
    """Every base question as it is and behind more filler; the length that loses most counts."""
    lengths = heads(scene)
    seen = {head: Losses() for head in lengths}
    exhibits: dict[int, list[Exhibit]] = {head: [] for head in lengths}
    early = False
    for part in (slice(0, FIRST_LOOK), slice(FIRST_LOOK, None)):
        contents = scene.base()
        plain = [ask for content in contents for ask in content.asks[part]]
        longer = {head: _longer(scene, contents, head, part) for head in lengths}
        answers = yield scene.fair([*plain, *(ask for asks in longer.values() for ask in asks)])
        short = rows(answers, Arm.SCREEN)
        for head, asks in longer.items():
            long = rows(answers, Arm.SHIFT, head)
            before = len(seen[head].lost)
            seen[head].add(short, long)
            pairs = {(a.context, a.item): (a, b) for a, b in zip(plain, asks, strict=True)}
            for key in seen[head].lost[before:]:
                exhibits[head].append(Exhibit(*pairs[key], (short[key].text, long[key].text)))
        early = not any(one.lost for one in seen.values())
        if early:
            break
    worst = max(lengths, key=lambda head: seen[head].drop)
    sight = SMALLEST if early else None
    found = loss_finding(
        NAME, seen[worst], LEAST, sight, tests=len(lengths), exhibits=exhibits[worst]
    )
    return found


def _longer(scene: Scene, contents: list[Content], head: int, part: slice) -> list[Ask]:
    """The same questions behind ``head`` more filler tokens."""
    return [
        ask
        for content in contents
        for ask in padded(scene, content, head, 0, content.asks[part], Arm.SHIFT)
    ]


# A long prefill counts as several of a base content's length.
_PREFILLS = 2 * len(ALIGNED) * (1 + sum(round(LONGEST * share / 512) for share in SHARES))
CAUSE = Cause(NAME, test, SMALLEST, LEAST, Price(QUESTIONS * (1 + len(SHARES)), _PREFILLS), (room,))
