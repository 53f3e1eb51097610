"""Do answers change with the way of asking, beyond what plain repeats change?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.causes.base import LEVEL, POWER, Exhibit, Finding
from kvphase.causes.exact import detectable, sign_p
from kvphase.causes.scene import otherwise
from kvphase.stats.audit import NEAR_TIE
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.types import Answers, Ask, Flow

UNSEEN = 0.002
"""Chance at most that an effect of the smallest size shows nothing at the first look."""
SHOWN = 8
"""Exhibits that are kept."""

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One answer."""

    text: str
    margin: float
    """Best minus second log-probability; infinite where unknown."""
    correct: int


def rows(answers: Answers, arm: Arm, pad: int | None = None) -> dict[Key, Row]:
    """Finished answers of an arm, at one pad if it is given, by context and item."""
    chosen = (answers.arm == arm.value) & (answers.correct >= 0)
    if pad is not None:
        chosen &= answers.pad == pad
    part = answers.where(chosen)
    margins = np.nan_to_num(part.margin, nan=np.inf)
    columns = zip(part.context, part.item, part.text, margins, part.correct, strict=True)
    return {(int(c), int(i)): Row(str(t), float(m), int(r)) for c, i, t, m, r in columns}


@dataclass(slots=True)
class Flips:
    """Three answers to each question: as usual, the control's, and asked in the other way."""

    n: int = 0
    """Questions whose usual answer is no near tie."""
    more: int = 0
    """Only the other way's answer differs."""
    fewer: int = 0
    """Only the control's answer differs."""
    differ: int = 0
    """The other way's answer differs, whatever the control's."""
    keys: list[Key] = field(default_factory=list)
    """Where only the other way's answer differs."""

    def add(self, usual: dict[Key, Row], control: dict[Key, Row], other: dict[Key, Row]) -> None:
        """Count questions that have all three answers."""
        for key, row in usual.items():
            if key not in control or key not in other or not clear(row):
                continue
            self.n += 1
            plain, changed = differs(row, control[key]), differs(row, other[key])
            self.differ += changed
            self.more += changed and not plain
            self.fewer += plain and not changed
            if changed and not plain:
                self.keys.append(key)


def clear(row: Row) -> bool:
    """No near tie: rounding alone, in another order of adding, would not change it."""
    return row.margin > NEAR_TIE


def differs(one: Row, other: Row) -> bool:
    """Another text, and not because the two best next tokens are all but equal."""
    return one.text != other.text and clear(other)


Way = Callable[["Ask"], "Ask"]


@dataclass(frozen=True, slots=True)
class Ways:
    """Three ways to ask the same question."""

    usual: Way
    """What the others are compared with."""
    control: Way
    """As the usual one, once more: what differs here is chance."""
    other: Way
    """What may change answers."""


def beside_screen(arm: Arm) -> Ways:
    """The screen's own question, plainly repeated, and under ``arm``."""
    return Ways(
        lambda ask: ask,
        lambda ask: otherwise(ask, Arm.REPEAT),
        lambda ask: otherwise(ask, arm),
    )


def flips_between(
    looks: Sequence[Sequence[Ask]], cause: str, ways: Ways, smallest: float, least: float
) -> Flow[Finding]:
    """Count the questions that only the other way answers otherwise.

    The control is asked only where something differs. Where nothing does at the first look, the
    rest is not asked either: an effect of the smallest size passes that look unseen less than once
    in five hundred times.

    Args:
        looks: Questions of each look.
        cause: Its name.
        ways: How they are asked.
        smallest: As declared.
        least: As declared.

    Yields:
        The questions of a look in the usual and in the other way, content by content; then, if
        answers differ, those of the control.

    Returns:
        The finding.
    """
    seen = Flips()
    exhibits: list[Exhibit] = []
    early = False
    for asks in looks:
        answers = yield by_content(asks, ways.usual, ways.other)
        usual, other = (
            _rows_of(answers, ways.usual(asks[0])),
            _rows_of(answers, ways.other(asks[0])),
        )
        clean = [key for key, row in usual.items() if clear(row) and key in other]
        early = seen.n == 0 and not any(differs(usual[key], other[key]) for key in clean)
        if early and (1.0 - smallest) ** len(clean) <= UNSEEN:
            seen.n = len(clean)
            break
        again = yield by_content(asks, ways.control)
        before = len(seen.keys)
        seen.add(usual, _rows_of(again, ways.control(asks[0])), other)
        exhibits += _shown(asks, seen.keys[before:], ways, usual, other)
        early = False
    sight = smallest if early else detectable(seen.n, seen.fewer / max(1, seen.n), POWER)
    return _judged(cause, seen, least, sight, exhibits)


def _rows_of(answers: Answers, like: Ask) -> dict[Key, Row]:
    """The answers to asks of the same arm and mark as ``like``."""
    return rows(answers, like.arm, like.pad)


def by_content(asks: Sequence[Ask], *ways: Way) -> list[Ask]:
    """One way of asking after the other within each content, so that its prefix is shared."""
    contexts = dict.fromkeys(ask.context for ask in asks)
    return [
        way(ask) for context in contexts for way in ways for ask in asks if ask.context == context
    ]


def _shown(
    asks: Sequence[Ask],
    keys: Sequence[Key],
    ways: Ways,
    usual: dict[Key, Row],
    other: dict[Key, Row],
) -> list[Exhibit]:
    """Questions whose answers differ, with both answers."""
    by_key = {(ask.context, ask.item): ask for ask in asks}
    return [
        Exhibit(
            ways.usual(by_key[key]),
            ways.other(by_key[key]),
            (usual[key].text, other[key].text),
        )
        for key in keys[:SHOWN]
    ]


def _judged(
    cause: str, seen: Flips, least: float, sight: float | None, exhibits: Sequence[Exhibit]
) -> Finding:
    """Found where the other way changes more answers than the control does, and enough of them."""
    p = sign_p(seen.more, seen.fewer)
    effect = (seen.more - seen.fewer) / max(1, seen.n)
    found = p <= LEVEL and effect >= least
    return Finding(
        cause=cause,
        status="found" if found else "not-found",
        evidence=message(
            "diagnose.flips" if seen.differ else "diagnose.flips-none",
            how=message(f"diagnose.how.{cause}"),
            differ=seen.differ,
            control=seen.differ - seen.more + seen.fewer,
            n=seen.n,
            p=p,
        ),
        would_have_seen=seen_from(sight, "flips"),
        p_value=p,
        effect_pp=100 * effect,
        n=seen.n,
        exhibits=tuple(exhibits[:SHOWN]) if found else (),
    )


def seen_from(sight: float | None, what: str) -> Message:
    """The smallest effect that would have been found, as a sentence's part."""
    if sight is None:
        return message("diagnose.sight.none")
    return message(f"diagnose.sight.{what}", pp=100 * sight)
