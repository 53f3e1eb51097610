"""Does accuracy follow the residue of the target's position, cycle after cycle?

The last of the causes on one endpoint: what else changes answers is known by then. Where the cache
does, every question is asked cold. A screen finds a period; the same contents, shifted, show
whether it follows the target and not the question.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.causes.base import ALPHA, LEVEL, Cause, Exhibit, Finding, Price
from kvphase.causes.flips import SHOWN, seen_from
from kvphase.causes.scene import RECORDS
from kvphase.causes.screen import asked
from kvphase.probes.confirm import ConfirmDesign, ConfirmPlan, contents_for
from kvphase.probes.needle import plan_needle
from kvphase.stats.gap import crossfit
from kvphase.stats.looks import WEIGHTS
from kvphase.stats.paired import confirm
from kvphase.stats.period import REPLICATION, detect, name_period, replication_p
from kvphase.stats.series import per_answer, screen_candidates
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Message
    from kvphase.causes.scene import Scene
    from kvphase.stats.confirmed import Confirmation
    from kvphase.types import Answers, Ask, Flow

PREDICTION = (
    "Accuracy has a period in the target's position, the same in both halves of the cycles, and "
    "keeps to the target when contents are shifted."
)
SMALLEST = 0.25
"""Accuracy of one residue of up to four below the others, found in ``CONTEXTS`` contexts."""
CONTEXTS = 80
LEAST = 0.05
LOOKS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the contexts after which the answers are tested; ``WEIGHTS`` share out the level."""
HOPELESS = (0.5, 0.2, 0.1, 1.0)
"""P values at these looks above which the rest is not asked: an effect of the smallest size has
them less than once in three hundred times. Who has more than the usual contexts asked looks for
smaller effects, and no look ends that."""
QUESTIONS = RECORDS
CONFIRM = 700
"""Added to the seed of contents that are shifted."""
NAME = "phase"


def test(scene: Scene) -> Flow[Finding]:
    """Screen, look by look; then shift contents where something was found."""
    ends = [round(scene.contexts * share) for share in LOOKS]
    answers: Answers | None = None
    p, before = 1.0, 0
    for end, weight, hopeless in zip(ends, WEIGHTS, HOPELESS, strict=True):
        got = yield from asked(scene, before, end)
        answers = got if answers is None else answers.join(got)
        before = end
        looked, period = _look(answers, scene.seed)
        p = min(p, looked / weight)
        if period is not None and p <= LEVEL:
            return (yield from _shifted(scene, answers, p, period))
        if looked > hopeless and scene.contexts <= CONTEXTS:
            break
    if answers is None:
        raise AssertionError("there are looks")
    return _not_found(scene, answers, p)


def _look(answers: Answers, seed: int) -> tuple[float, int | None]:
    """P value of the screen so far, and its period if it repeats over cycles."""
    done = answers.where(answers.correct >= 0)
    series = per_answer(done)
    rng = np.random.default_rng([seed, 0x706861])
    test = detect(series, screen_candidates(series), rng)
    if not test.tested or test.p_value is None:
        return 1.0, None
    if test.p_value > ALPHA:
        return test.p_value, None
    # The permutations go down to one in ten thousand; beyond, chi-square with Bonferroni.
    bound = min(1.0, len(test.tested) * float(np.exp(min(test.log_p))))
    period = name_period(series, test, rng)
    repeats = replication_p(series, period, rng) <= REPLICATION
    return bound, period if repeats else None


def _gap(answers: Answers, period: int, seed: int) -> tuple[float, tuple[float, float] | None]:
    """Cross-fitted gap and its interval, percentage points."""
    done = answers.where(answers.correct >= 0)
    rng = np.random.default_rng([seed, 0x676170])
    correct = done.correct.astype(np.float64)
    fitted = crossfit(correct, done.position % period, done.context, rng)
    return (0.0, None) if fitted is None else (fitted.pp, fitted.ci95)


def _shifted(scene: Scene, screen: Answers, p: float, period: int) -> Flow[Finding]:
    """Which position does the period follow?"""
    gap, ci95 = _gap(screen, period, scene.seed)
    mean = float(screen.correct[screen.correct >= 0].mean())
    plan = _plan(scene, period, mean, _SAFELY * gap)
    answers, asks = None, []
    for batch in plan.batches():
        if batch[0].arm is not Arm.SHIFT:
            continue
        sent = scene.fair(batch)
        got = yield sent
        asks += sent
        answers = got if answers is None else answers.join(got)
    if answers is None:
        raise AssertionError("contents are shifted")
    found = confirm(answers, period, expected_pp=gap, seed=scene.seed)
    follows = found.factors[0].p_value is not None and found.factors[0].p_value <= _FOLLOWS
    sure = follows and gap >= 100 * LEAST
    return Finding(
        cause=NAME,
        status="found" if sure else "not-found",
        evidence=_evidence(found, period, gap, p, sure=sure),
        would_have_seen=seen_from(_sight(scene), "phase"),
        p_value=p,
        effect_pp=gap,
        ci95=ci95,
        n=len(screen) + len(answers),
        exhibits=exhibits(answers, asks, period) if sure else (),
    )


_FOLLOWS = 0.005
"""Level of the test that the period found follows the target: the screen has the small one."""


_SAFELY = 0.8
"""Contents are made for this part of the gap that the screen estimates."""


def _plan(scene: Scene, period: int, mean: float, gap: float) -> ConfirmPlan:
    contents = contents_for(period, QUESTIONS, mean, gap)
    design = replace(scene.design, contexts=contents)
    base = plan_needle(
        scene.vocab, scene.limits, design, scene.seed + CONFIRM * 1_000_003, balanced=False
    )
    return ConfirmPlan(base, ConfirmDesign(period, contents, QUESTIONS, gap))


def _evidence(found: Confirmation, period: int, gap: float, p: float, *, sure: bool) -> Message:
    """What the screen found, and what became of it when contents were shifted."""
    why = found.reason
    key = "diagnose.phase" if sure else "diagnose.phase-elsewhere"
    return message(key, period=period, pp=gap, p=p, why=why)


def exhibits(answers: Answers, asks: Sequence[Ask], period: int) -> tuple[Exhibit, ...]:
    """Questions right wherever the target has one residue and wrong wherever it has another."""
    by_place = {(ask.item, ask.target): ask for ask in asks}
    found: list[tuple[int, Exhibit]] = []
    for item in np.unique(answers.item):
        here = answers.where((answers.item == item) & (answers.correct >= 0))
        residue = here.position % period
        rates = [here.correct[residue == r] for r in range(period)]
        right = [r for r, row in enumerate(rates) if len(row) and row.all()]
        wrong = [r for r, row in enumerate(rates) if len(row) and not row.any()]
        if right and wrong:
            good = int(np.flatnonzero(residue == right[0])[0])
            bad = int(np.flatnonzero(residue == wrong[0])[0])
            pair = [by_place[int(item), int(here.position[k])] for k in (good, bad)]
            texts = (str(here.text[good]), str(here.text[bad]))
            found.append((int(here.position[good]), Exhibit(pair[0], pair[1], texts)))
    return tuple(exhibit for _, exhibit in found[:SHOWN])


def _sight(scene: Scene) -> float:
    """The smallest effect in as many contexts as there are: it falls with their square root."""
    return min(1.0, SMALLEST * math.sqrt(CONTEXTS / scene.contexts))


def _not_found(scene: Scene, answers: Answers, p: float) -> Finding:
    done = answers.where(answers.correct >= 0)
    mean = float(done.correct.mean()) if len(done) else 0.0
    return Finding(
        cause=NAME,
        status="not-found",
        evidence=message("diagnose.phase-not", n=len(done), mean=100 * mean, p=p),
        would_have_seen=seen_from(_sight(scene), "phase"),
        p_value=p,
        n=len(done),
    )


def room(scene: Scene) -> Message | None:
    """Budget for a screen at all."""
    return None if scene.contexts else message("diagnose.needs.screen")


CAUSE = Cause(
    NAME, test, SMALLEST, LEAST, Price(CONTEXTS * RECORDS * 3 // 2, CONTEXTS * 3 // 2), (room,)
)
