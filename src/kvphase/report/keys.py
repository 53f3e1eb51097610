"""The figures beside a verdict, each with what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.report.words import p_text, percent, points

if TYPE_CHECKING:
    from kvphase.report.words import Words


@dataclass(frozen=True, slots=True)
class Key:
    """One figure of the verdict."""

    label: str
    value: str
    note: str
    unit: str = ""


def key_figures(said: Words) -> list[Key]:
    """Gap, worst and best residue, mean, and what the test says; what is unknown is left out."""
    document, say, gap = said.document, said.say, said.document.gap
    unit = say("page.key.points")
    note = say("page.key.gap.note", null=points(gap.null_pp))
    raw = Key(say("page.key.gap"), points(gap.raw_pp), note, unit)
    keys = [*_crossfitted(said, unit), raw]
    for name in ("worst", "best"):
        phase = document.worst if name == "worst" else document.best
        if phase is not None:
            where = say("page.key.residue", residue=phase.residue, modulus=document.modulus)
            keys.append(Key(say(f"page.key.{name}"), percent(phase.accuracy), where))
    hides = "note" if document.verdict == "phase-sensitive" else "plain"
    mean = say(f"page.key.mean.{hides}", n=f"{document.n:,}")
    keys.append(Key(say("page.key.mean"), percent(document.mean), mean))
    return keys + _of_test(said, unit)


def _crossfitted(said: Words, unit: str) -> list[Key]:
    """The gap without the winner's curse, where it can be had."""
    say, gap = said.say, said.document.gap
    if gap.crossfit_pp is None or gap.ci95 is None:
        return []
    low, high = (points(end) for end in gap.ci95)
    note = say("page.key.crossfit.note", low=low, high=high, over=said.of(gap.over or "?"))
    return [Key(say("page.key.crossfit"), points(gap.crossfit_pp), note, unit)]


def _of_test(said: Words, unit: str) -> list[Key]:
    document, say = said.document, said.say
    keys = []
    if document.period is not None:
        note = say("page.key.period.note")
        keys.append(Key(say("page.key.period"), str(document.period), note))
    if document.p_value is not None:
        note = say("page.key.p.note", alpha=f"{document.alpha:g}")
        keys.append(Key(say("page.key.p"), p_text(document.p_value), note))
    if document.mde_pp is not None and not said.found:
        note = say("page.key.mde.note")
        keys.append(Key(say("page.key.mde"), points(document.mde_pp), note, unit))
    return keys
