"""Is the level lower than elsewhere, the shape over phases being the same?

Elsewhere is another quantisation, KV type, runtime, version or provider that was asked the same
prompts. The same shape at another level is what coarser numbers do; another shape is another phase
or a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.causes import needs
from kvphase.causes.base import ALPHA, LEVEL, POWER, Cause, Finding, Price
from kvphase.causes.exact import detectable, sign_p
from kvphase.causes.flips import seen_from
from kvphase.causes.scene import MODULUS, RECORDS
from kvphase.decide.pairs import Estimate, gap_difference, mean_difference, pattern_paired
from kvphase.decide.phases import tally
from kvphase.types import Answers

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.causes.against import Against
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "On the same prompts the level differs from that elsewhere, the shape over phases not."
SMALLEST = 0.12
LEAST = 0.02
CONTEXTS = 20
"""Of the screen, that an endpoint to compare with is asked."""
NAME = "precision"


def test(scene: Scene) -> Flow[Finding]:
    """Everything that the others answered is asked here too; the largest difference counts."""
    found = []
    for other in scene.against:
        answers = yield other.asks
        found.append(_compared(scene, other, answers))
    return min(found, key=lambda one: (one.status != "found", one.p_value))


@dataclass(frozen=True, slots=True)
class _Pairs:
    here: Answers
    there: Answers


def _compared(scene: Scene, other: Against, answers: Answers) -> Finding:
    pairs = _paired(answers, other.answers)
    difference = pairs.here.correct.astype(int) - pairs.there.correct
    lost, won, n = int((difference < 0).sum()), int((difference > 0).sum()), len(difference)
    tests = 2 * len(scene.against)
    p = min(1.0, tests * sign_p(max(lost, won), min(lost, won)))
    rng = np.random.default_rng([scene.seed, 0x707263])
    counted = [tally(one, pairs.here.context, MODULUS) for one in (pairs.here, pairs.there)]
    level = mean_difference(counted[0], counted[1], 0.05, paired=True)
    gap = gap_difference(counted[0], counted[1], 0.05, rng, paired=True)
    shape = pattern_paired(pairs.here, pairs.there, "insequence", MODULUS, rng).p_value
    effect = (won - lost) / max(1, n)
    differs = shape is not None and shape <= ALPHA
    found = p <= LEVEL and abs(effect) >= LEAST and not differs
    sight = detectable(n, min(lost, won) / max(1, n), POWER, LEVEL / tests)
    return Finding(
        cause=NAME,
        status="found" if found else "not-found",
        evidence=message(
            "diagnose.precision-shape" if differs else "diagnose.precision",
            name=other.name,
            here=100 * float(pairs.here.correct.mean()) if n else 0.0,
            there=100 * float(pairs.there.correct.mean()) if n else 0.0,
            n=n,
            level=_spoken(level),
            gap=_spoken(gap),
            p=p,
            shape=1.0 if shape is None else shape,
        ),
        would_have_seen=seen_from(sight, "loss"),
        p_value=p,
        effect_pp=100 * effect,
        ci95=None if level is None else (level.low, level.high),
        n=n,
    )


def _spoken(estimate: Estimate | None) -> Message:
    if estimate is None:
        return message("diagnose.unknown")
    return message("diagnose.interval", pp=estimate.pp, low=estimate.low, high=estimate.high)


def _paired(here: Answers, there: Answers) -> _Pairs:
    """Rows of the two that answer the same question, in one order."""
    done = [answers.where(answers.correct >= 0) for answers in (here, there)]
    first, second = ({key: k for k, key in enumerate(_keys(one))} for one in done)
    shared = [key for key in first if key in second]
    return _Pairs(
        _taken(done[0], [first[key] for key in shared]),
        _taken(done[1], [second[key] for key in shared]),
    )


def _keys(answers: Answers) -> list[tuple[int, int, int]]:
    """What tells the questions apart."""
    columns = (answers.context, answers.item, answers.pad)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _taken(answers: Answers, rows: list[int]) -> Answers:
    """These rows in this order."""
    picks = np.array(rows, np.int64)
    return Answers(*(getattr(answers, column.name)[picks] for column in fields(answers)))


CAUSE = Cause(NAME, test, SMALLEST, LEAST, Price(CONTEXTS * RECORDS, CONTEXTS), (needs.against,))
