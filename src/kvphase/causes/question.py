"""Do answers depend on the residue of the question, or of the prompt's length?

Filler before the demonstrations moves the question and nothing else. A kernel that attends an
unfinished group, or a buffer that is cut at a block's edge, goes wrong at some lengths only; true
phase follows the target and stays. Report behind it: an unfinished group attended wherever
(q + 1) mod 4 is not 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.causes.base import ALPHA, LEVEL, Cause, Exhibit, Finding, Price
from kvphase.causes.flips import SHOWN, seen_from
from kvphase.causes.scene import MODULUS, padded
from kvphase.stats.period import detect, name_period
from kvphase.stats.series import per_prefill, sweep_candidates
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Answers, Ask, Flow

PREDICTION = "With filler behind the target only, accuracy has a period in the question's position."
SMALLEST = 0.50
"""Accuracy at one residue of four below that at the others."""
LEAST = 0.10
CONTENTS, QUESTIONS, PADS = 3, 8, 2 * MODULUS
HOPELESS = 0.3
"""P value of the first content above which the others are not asked: an effect of the smallest size
stands five standard errors out there."""
NUMBER = 600
"""Of the first content."""
NAME = "question"


def test(scene: Scene) -> Flow[Finding]:
    """Ask the same questions at every tail pad of two cycles.

    One row a prefill; trends along the pad are taken out, the rest is permuted within contents.
    """
    found: Answers | None = None
    asked: list[Ask] = []
    for number in range(NUMBER, NUMBER + CONTENTS):
        content = scene.content(number)
        asks = content.asks[:QUESTIONS]
        batch = scene.fair(
            ask for pad in range(PADS) for ask in padded(scene, content, 0, pad, asks, Arm.TAIL)
        )
        answers = yield batch
        asked += batch
        found = answers if found is None else found.join(answers)
        if number == NUMBER and (_judged(scene, found, asked).p_value or 0.0) > HOPELESS:
            break
    if found is None:
        raise AssertionError("there are contents")
    return _judged(scene, found, asked)


def _judged(scene: Scene, answers: Answers, asked: list[Ask]) -> Finding:
    done = answers.where(answers.correct >= 0)
    moved = replace(done, position=done.question)
    series, shared = per_prefill(moved, MODULUS)
    rng = np.random.default_rng([scene.seed, 0x717565])
    test = detect(series, sweep_candidates(series, shared), rng)
    p, effect, period = 1.0, 0.0, None
    if test.tested and test.p_value is not None:
        # The permutations go down to one in ten thousand; beyond, chi-square with Bonferroni.
        bound = min(1.0, len(test.tested) * float(np.exp(min(test.log_p))))
        p = max(bound, test.p_value if test.p_value > ALPHA else 0.0)
        period = name_period(series, test, rng)
        rates = _rates(moved, period)
        effect = float(np.nanmax(rates) - np.nanmin(rates))
    found = p <= LEVEL and effect >= LEAST
    return Finding(
        cause=NAME,
        status="found" if found else "not-found",
        evidence=message("diagnose.question", n=len(done), period=period or 0, pp=100 * effect, p=p)
        if found
        else message("diagnose.question-not", n=len(done), p=p),
        would_have_seen=seen_from(SMALLEST, "residue"),
        p_value=p,
        effect_pp=100 * effect,
        n=len(done),
        exhibits=_exhibits(moved, asked, period) if found and period else (),
    )


def _rates(answers: Answers, period: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Accuracy at each residue, shape (period,)."""
    residue = answers.position % period
    n = np.bincount(residue, minlength=period)
    return np.asarray(np.bincount(residue, answers.correct, minlength=period) / np.maximum(n, 1))


def _exhibits(answers: Answers, asked: list[Ask], period: int) -> tuple[Exhibit, ...]:
    """Questions right at the best residue's length and wrong at the worst one's."""
    rates = _rates(answers, period)
    best, worst = int(rates.argmax()), int(rates.argmin())
    asks = {(ask.item, ask.question): ask for ask in asked}
    found: list[Exhibit] = []
    for item in np.unique(answers.item):
        here = answers.where(answers.item == item)
        right = here.where((here.correct == 1) & (here.position % period == best))
        wrong = here.where((here.correct == 0) & (here.position % period == worst))
        if len(right) and len(wrong):
            pair = (
                asks[int(item), int(right.question[0])],
                asks[int(item), int(wrong.question[0])],
            )
            found.append(Exhibit(*pair, (str(right.text[0]), str(wrong.text[0]))))
    return tuple(found[:SHOWN])


CAUSE = Cause(NAME, test, SMALLEST, LEAST, Price(CONTENTS * QUESTIONS * PADS, CONTENTS * PADS))
