"""Does the same question, sent again, get the same answer?

At temperature 0 it should. Every other cause must exceed what plain repeats change, so this comes
first. Reports behind it: top-k ties, batching, corrupted entries under load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.causes.base import LEVEL, Cause, Exhibit, Finding, Price
from kvphase.causes.exact import binomial_p
from kvphase.causes.flips import SHOWN, by_content, clear, differs, rows, seen_from
from kvphase.causes.scene import ALIGNED, QUESTIONS, otherwise
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "Of clear answers (no near tie), some change when the same prompt is sent again."
TOLERATED = 0.01
"""Changes among clear answers that count as none."""
SMALLEST = 0.15
LEAST = 0.02
NAME = "repeatability"


def test(scene: Scene) -> Flow[Finding]:
    """Ask every base question twice; the number of changes is binomial where 1% is tolerated."""
    n = changed = 0
    exhibits: list[Exhibit] = []
    for asks in scene.looks():
        answers = yield by_content(asks, lambda ask: ask, lambda ask: otherwise(ask, Arm.REPEAT))
        first, again = rows(answers, Arm.SCREEN), rows(answers, Arm.REPEAT)
        by_key = {(ask.context, ask.item): ask for ask in asks}
        for key, row in first.items():
            if key not in again or not clear(row):
                continue
            n += 1
            if differs(row, again[key]):
                changed += 1
                ask = by_key[key]
                texts = (row.text, again[key].text)
                exhibits.append(Exhibit(ask, otherwise(ask, Arm.REPEAT), texts))
    p = binomial_p(changed, n, TOLERATED)
    share = changed / max(1, n)
    found = p <= LEVEL and share >= LEAST
    return Finding(
        cause=NAME,
        status="found" if found else "not-found",
        evidence=message("diagnose.repeats", changed=changed, n=n, p=p),
        would_have_seen=seen_from(sight(n), "flips"),
        p_value=p,
        effect_pp=100 * share,
        n=n,
        exhibits=tuple(exhibits[:SHOWN]) if found else (),
    )


def sight(n: int) -> float | None:
    """Smallest share of changed answers found with the declared power among ``n``."""
    need = next((k for k in range(1, n + 1) if binomial_p(k, n, TOLERATED) <= LEVEL), n + 1)
    shares = (points / 100 for points in range(1, 101))
    return next((s for s in shares if binomial_p(need, n, s) >= CAUSE.power), None)


CAUSE = Cause(NAME, test, SMALLEST, LEAST, Price(2 * QUESTIONS, 2 * len(ALIGNED)))
