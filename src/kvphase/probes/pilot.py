"""How many records make the questions neither too easy nor too hard for this model.

A pilot asks a few questions at one number of records after another and looks at the pooled mean
alone; its answers are discarded. What it settles on is written into the run before the screen
begins, so the screen's answers never decide their own difficulty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.probes.needle import NeedlePlan
    from kvphase.types import Ask, Flow

LOW, HIGH, AIM = 0.5, 0.9, 0.7
"""A mean between LOW and HIGH is good enough; of several the one nearest AIM."""
UP, DOWN = 2.5, 0.5
"""Steps of the number of records when it was too easy, and when it was too hard."""
QUESTIONS = 48
"""Asked at one number of records at most: a standard error of about .07."""

Plans = Callable[[int, int], "NeedlePlan"]
"""The plan of a single context with so many records; the second number tells the tries apart."""


def pilot(plans: Plans, start: int, least: int, most: int, step: int, tries: int) -> Flow[int]:
    """Find a number of records at which the model is right in about seven of ten.

    Args:
        plans: Composes one context.
        start: Records to begin with.
        least: Fewest that the design allows.
        most: Most that fit the context and the tokenizer's words.
        step: Records come in multiples of this.
        tries: Contexts that may be spent.

    Yields:
        The questions of one context.

    Returns:
        The number of records tried whose mean came nearest to the aim.
    """
    seen: dict[int, float] = {}
    records = min(max(start, least), most)
    for attempt in range(tries):
        answers = yield pilot_asks(plans(records, attempt))
        done = answers.correct[answers.correct >= 0]
        seen[records] = float(done.mean()) if len(done) else 0.0
        if LOW <= seen[records] <= HIGH:
            break
        factor = UP if seen[records] > HIGH else DOWN
        following = min(max(_multiple(records * factor, step), least), most)
        if following in seen:
            following = _between(records, following, step)
        if following in seen:
            break
        records = following
    # Of equally bad ones the hardest where it was too easy, the easiest where it was too hard.
    return min(seen, key=lambda n: (abs(seen[n] - AIM), -n if seen[n] > AIM else n))


def pilot_asks(plan: NeedlePlan) -> list[Ask]:
    """The first questions of the plan's only context, marked as a pilot's."""
    screen = plan.screen(plan.layouts[0], f"pilot {plan.design.records}".encode(), plan.seed)
    return [replace(ask, arm=Arm.PILOT, id=f"p{ask.id}") for ask in screen[:QUESTIONS]]


def _multiple(records: float, step: int) -> int:
    return max(step, round(records / step) * step)


def _between(records: int, following: int, step: int) -> int:
    """A number of records between one that was too easy and one that was too hard."""
    return _multiple((records * following) ** 0.5, step)
