"""Do answers depend on how a question was asked: again, or without the prefix cache?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.stats.intervals import Z_ONE_SIDED_95, difference_lower95, wilson
from kvphase.types import Arm, Audit

if TYPE_CHECKING:
    from kvphase.types import Answers

NEAR_TIE = 0.25
"""Margin (natural log) up to which two next tokens count as nearly tied.

Logits of 16 to 32 are 0.125 apart in bfloat16: two such steps may change sides with the order in
which a kernel adds, and say nothing about a cache.
"""
MOST_EXCESS = 0.02
MOST_UNFINISHED = 0.05

Key = tuple[int, int, int]


def audit(answers: Answers) -> Audit:
    """Compare screen answers with the same (context, item, pad) repeated and asked cold.

    A flip is another answer text. What counts is the disagreement of cold asks beyond that of
    plain repeats, with Newcombe's one-sided 95% limit. Pairs with an unfinished answer are left
    out: they are counted as unfinished.
    """
    audited = np.isin(answers.arm, (Arm.REPEAT.value, Arm.COLD.value, Arm.ALONE.value)).any()
    screen = _by_key(answers, Arm.SCREEN) if audited else {}
    repeated, repeat_flips, _ = _flips(answers, screen, Arm.REPEAT)
    cold, cold_flips, near = _flips(answers, screen, Arm.COLD)
    alone, alone_flips, _ = _flips(answers, screen, Arm.ALONE)
    share = cold_flips / cold if cold else 0.0
    plain = repeat_flips / repeated if repeated else 0.0
    of_screen = answers.arm == Arm.SCREEN.value
    return Audit(
        repeated=repeated,
        repeat_flips=repeat_flips,
        cold=cold,
        cold_flips=cold_flips,
        near_ties=near,
        alone=alone,
        alone_flips=alone_flips,
        excess=share - plain,
        excess_lower95=difference_lower95(cold_flips, cold, repeat_flips, repeated)
        if cold
        else 0.0,
        unfinished=int((answers.correct[of_screen] < 0).sum()),
        asked=int(of_screen.sum()),
    )


def failed(found: Audit) -> str | None:
    """Why a run with this audit is unreliable, as a sentence, or None."""
    if found.excess_lower95 > MOST_EXCESS:
        return message(
            "verdict.reason.unreliable-cache",
            flips=found.cold_flips,
            cold=found.cold,
            repeat_flips=found.repeat_flips,
            repeated=found.repeated,
            excess=100 * found.excess_lower95,
            most=100 * MOST_EXCESS,
        )
    if found.asked and found.unfinished > MOST_UNFINISHED * found.asked:
        return message(
            "verdict.reason.unreliable-unfinished",
            unfinished=found.unfinished,
            asked=found.asked,
            most=100 * MOST_UNFINISHED,
        )
    return None


def unrepeatable(found: Audit) -> str | None:
    """That answers change when simply asked again, as a sentence, or None.

    No reason to withhold a verdict: such noise falls on all residues alike, widens every interval
    and is part of the smallest gap that would be seen.
    """
    least, _ = wilson(found.repeat_flips, found.repeated, z=Z_ONE_SIDED_95)
    if not found.repeated or least <= MOST_EXCESS:
        return None
    return message(
        "note.repeats", flips=found.repeat_flips, repeated=found.repeated, least=100 * least
    )


def _by_key(answers: Answers, arm: Arm) -> dict[Key, tuple[str, float]]:
    """Text and margin of each finished answer of an arm by (context, item, pad)."""
    done = answers.where((answers.arm == arm.value) & (answers.correct >= 0))
    rows = zip(done.context, done.item, done.pad, done.text, done.margin, strict=True)
    return {(int(c), int(i), int(p)): (str(text), float(m)) for c, i, p, text, m in rows}


def _flips(
    answers: Answers, screen: dict[Key, tuple[str, float]], arm: Arm
) -> tuple[int, int, int]:
    """Pairs, flips among them, and flips at a near tie of the screen's answer."""
    done = answers.where((answers.arm == arm.value) & (answers.correct >= 0))
    pairs = flips = near = 0
    for c, i, p, text in zip(done.context, done.item, done.pad, done.text, strict=True):
        original = screen.get((int(c), int(i), int(p)))
        if original is None:
            continue
        pairs += 1
        if str(text) != original[0]:
            flips += 1
            near += bool(np.nan_to_num(original[1], nan=np.inf) <= NEAR_TIE)
    return pairs, flips, near
