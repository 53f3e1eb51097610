"""Confirm: the same contents moved by a few tokens. Which position do the answers follow?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.stats.confirmed import Confirmation, Factor
from kvphase.stats.curve import curve
from kvphase.stats.factors import factors
from kvphase.stats.tail import tail_control
from kvphase.stats.twoway import contents
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Message
    from kvphase.stats.confirmed import ConfirmStatus, FactorName
    from kvphase.types import Answers

EXPECTED_PP = 10.0
"""Gap worth having found when no screen says which to expect."""

_NAMES: tuple[FactorName, ...] = ("target", "question", "distance")
_FOLLOWS: dict[FactorName, ConfirmStatus] = {
    "target": "follows-target",
    "question": "follows-question",
    "distance": "follows-distance",
}


def confirm(
    answers: Answers,
    period: int,
    *,
    alpha: float = 0.005,
    margin_pp: float = 10.0,
    expected_pp: float | None = None,
    seed: int = 0,
) -> Confirmation:
    """Which position do the answers follow when whole contents are shifted?

    Arm ``shift`` decides, arm ``tail`` is the control (see ``tail_control``); other arms are
    ignored, and so are unfinished answers and those whose question's position is unknown. Each of
    target, question and distance is tested modulo ``period`` at level ``alpha`` with the other
    two held fixed (see ``factors``). One significant factor is followed, several are ``mixed``.
    With none, ``not-confirmed`` needs a target gap of ``expected_pp`` to have been detectable.

    Args:
        answers: Rows in any order; some prefills may be incomplete or missing.
        period: Residues of every position, at least 2.
        alpha: Level of each factor's permutation test.
        margin_pp: Deviation up to which the tail control is flat, percentage points.
        expected_pp: Gap that the screen found, percentage points; 10 if None.
        seed: Of the permutations; the same seed gives the same result.

    Returns:
        The confirmation. Any number of answers, none included, gives one.

    Raises:
        UsageError: a period below 2.
    """
    if period < 2:
        raise UsageError(message("confirm.period-too-small", period=period))
    done = answers.where((answers.arm == Arm.SHIFT.value) & (answers.correct >= 0))
    of = contents(done.where(done.question >= 0), period)
    rng = np.random.default_rng([seed, 0x636F6E66])
    found = factors(of, period, alpha, rng) if of else _nothing()
    status, reason = _judged(
        found, period, alpha, EXPECTED_PP if expected_pp is None else expected_pp
    )
    if status == "inconclusive" and found[0].p_value is None:
        reason = _untested(done, period)
    return Confirmation(
        status=status,
        reason=reason,
        period=period,
        factors=found,
        curve=curve(done, period),
        tail=tail_control(answers, period, margin_pp),
        n=len(done),
        contexts=len(np.unique(done.context)),
    )


def _nothing() -> tuple[Factor, Factor, Factor]:
    """The factors of no answers."""
    target, question, distance = (Factor(name, None, None, (), None) for name in _NAMES)
    return target, question, distance


def _judged(
    found: Sequence[Factor], period: int, alpha: float, expected: float
) -> tuple[ConfirmStatus, Message]:
    """Status and reason from the three factors."""
    hits = [f for f in found if f.p_value is not None and f.p_value <= alpha]
    if len(hits) == 1:
        status = _FOLLOWS[hits[0].name]
        return status, message(
            f"confirm.{status}",
            period=period,
            figures=_figures(hits[0]),
            others=_others([f for f in found if f is not hits[0]]),
        )
    if hits:
        return "mixed", message("confirm.mixed", period=period, which=_listed(hits))
    target = found[0]
    values = {"period": period, "p": target.p_value, "mde": target.mde_pp, "expected": expected}
    if target.mde_pp is None or target.p_value is None:
        return "inconclusive", message("confirm.inconclusive-unknown", period=period)
    if target.mde_pp <= expected:
        return "not-confirmed", message("confirm.not-confirmed", **values)
    return "inconclusive", message("confirm.inconclusive", **values)


def _figures(factor: Factor) -> Message:
    """P value and gap."""
    if factor.gap_pp is None:
        return message("confirm.figures-no-gap", p=factor.p_value)
    return message("confirm.figures", p=factor.p_value, gap=factor.gap_pp)


def _others(rest: Sequence[Factor]) -> Message:
    """What became of the factors that are not followed."""
    untested = [f for f in rest if f.p_value is None]
    if not untested:
        return message("confirm.others-tested")
    names = [message(f"confirm.name-{f.name}") for f in untested]
    return message("confirm.others-untested", which=_joined(names))


def _listed(hits: Sequence[Factor]) -> Message:
    """The factors with their figures."""
    return _joined(
        [
            message("confirm.part", name=message(f"confirm.name-{f.name}"), figures=_figures(f))
            for f in hits
        ]
    )


def _joined(parts: Sequence[Message]) -> Message:
    """One, two or three things in a row."""
    keys = ("one", "two", "three")
    values = dict(zip(keys, parts, strict=False))
    return message(f"confirm.list-{keys[len(parts) - 1]}", **values)


def _untested(done: Answers, period: int) -> Message:
    """Why the target could not be tested."""
    if not len(done):
        return message("confirm.inconclusive-empty")
    right = int(done.correct.sum())
    if right in (0, len(done)):
        key = "confirm.inconclusive-right" if right else "confirm.inconclusive-wrong"
        return message(key, n=len(done))
    return message("confirm.inconclusive-unknown", period=period)
