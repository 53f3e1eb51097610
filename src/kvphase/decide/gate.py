"""Pass, fail, or cannot tell: whether a run shows that its worst phase is good enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvphase.catalogue import message
from kvphase.decide.bounds import growth
from kvphase.decide.phases import crossfit_extremes
from kvphase.decide.views import views
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Message
    from kvphase.decide.bounds import Bounds
    from kvphase.decide.views import Over, View
    from kvphase.runs.evidence import Evidence, Length

Outcome = Literal["pass", "fail", "cannot-tell"]
MOST_GROWTH = 100
"""Times as many tasks as a suite has that somebody might still be advised to write."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked of a model."""

    worst: float | None
    """Least accuracy of every phase, a fraction; None asks nothing."""
    gap_pp: float | None
    """Largest difference between two phases, percentage points; None asks nothing."""


@dataclass(frozen=True, slots=True)
class Gated:
    """One length against the limits."""

    rung: str
    outcome: Outcome
    why: Message
    settle: Message | None
    """What would settle it, where it cannot be told."""
    over: Over = "residues"
    """What the curve that decided is over."""
    fold: int | None = None
    """Residues of the curve that decided; None where nothing was measured."""
    n: int = 0
    contexts: int = 0
    """Of a suite its tasks."""
    lowest: float | None = None
    """Of the curve: what was seen, not what is known."""
    lowest_at: int | None = None
    raw_gap_pp: float | None = None
    bounds: Bounds | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """The decision on a run."""

    run: Evidence
    limits: Limits
    outcome: Outcome
    """Fail if any length fails, else cannot-tell if any cannot be told, else pass."""
    lengths: tuple[Gated, ...]


def gate(run: Evidence, limits: Limits, *, per_length: bool = False, seed: int = 0) -> Gate:
    """Decide whether ``run`` shows what ``limits`` ask, on confidence bounds over contexts.

    Each length passes only if the lower 95% bound of its worst phase and the upper 95% bound of its
    gap are both inside; it fails only if one of them is outside beyond doubt (a bound in the other
    direction). What was not measured, was interrupted or cannot be trusted never passes. A model
    that violates a limit at some length passes in at most 5% of runs: whichever limit and length it
    is, one bound must be wrong.

    Args:
        run: As read.
        limits: At least one of them set.
        per_length: Decide on every length, planned but unmeasured ones included; else on the one
            that the run's verdict rests on.
        seed: Of the splits behind "what would settle it"; no outcome depends on it.

    Raises:
        UsageError: nothing is asked, the file holds counts only, or the run was made neither with
            a named probe nor with ``--like``: its difficulty was chosen for the model at hand, so
            that passing would mean nothing. A suite of prompts is fixed and may be gated.
    """
    if limits.worst is None and limits.gap_pp is None:
        raise UsageError(message("decide.gate-nothing"))
    if run.counts:
        raise UsageError(message("decide.gate-counts", name=run.name))
    if not run.frozen:
        raise UsageError(message("decide.gate-unfrozen", name=run.name))
    wanted = [length for length in run.lengths if per_length or length.rung == run.headline]
    found = [_gated(length, run, limits, seed) for length in wanted]
    if per_length:
        found += [_unmeasured(rung, why) for rung, why in run.skipped]
    if not found:
        found = [_unmeasured(run.headline, message("decide.gate-no-needles"))]
    return Gate(run, limits, _worst_outcome(found), tuple(found))


def _worst_outcome(found: Sequence[Gated]) -> Outcome:
    outcomes = {one.outcome for one in found}
    if "fail" in outcomes:
        return "fail"
    return "cannot-tell" if "cannot-tell" in outcomes else "pass"


def _unmeasured(rung: str, why: str) -> Gated:
    return Gated(
        rung=rung,
        outcome="cannot-tell",
        why=message("decide.gate-unmeasured", rung=rung, why=why),
        settle=message("decide.settle-measure"),
    )


def _gated(length: Length, run: Evidence, limits: Limits, seed: int) -> Gated:
    looked = views(length, run.suite)
    at = _decisive([view.bounds for view in looked], limits)
    view = looked[at]
    outcome, why = _judged(view.bounds, limits)
    settle = None
    if outcome == "cannot-tell":
        settle = _more(view, limits, seed, tasks=run.suite is not None)
    doubt = _doubt(length, run, outcome)
    if doubt is not None:
        outcome, (why, settle) = "cannot-tell", doubt
    accuracy = view.counts.accuracy
    seen = bool(view.counts.n.sum())
    lowest = int(np.nanargmin(accuracy)) if seen else None
    return Gated(
        rung=length.rung,
        outcome=outcome,
        why=why,
        settle=settle,
        over=view.over,
        fold=view.fold,
        n=len(length.level),
        contexts=view.counts.clusters,
        lowest=None if lowest is None else float(accuracy[lowest]),
        lowest_at=lowest,
        raw_gap_pp=100 * float(np.nanmax(accuracy) - np.nanmin(accuracy)) if seen else None,
        bounds=view.bounds,
    )


def _decisive(made: Sequence[Bounds], limits: Limits) -> int:
    """The curve that speaks most against passing."""
    rank = {"fail": 0, "cannot-tell": 1, "pass": 2}
    return min(
        range(len(made)),
        key=lambda i: (rank[_judged(made[i], limits)[0]], made[i].worst_low, i),
    )


def _judged(found: Bounds, limits: Limits) -> tuple[Outcome, Message]:
    """The outcome by the bounds alone, with the reason in numbers."""
    values = {
        "low": 100 * found.worst_low,
        "high": 100 * found.worst_high,
        "worst": 100 * (limits.worst or 0.0),
        "gap_low": found.gap_low_pp,
        "gap_high": found.gap_high_pp,
        "gap": limits.gap_pp or 0.0,
    }
    if limits.worst is not None and found.worst_high < limits.worst:
        return "fail", message("decide.fail-worst", **values)
    if limits.gap_pp is not None and found.gap_low_pp > limits.gap_pp:
        return "fail", message("decide.fail-gap", **values)
    unsure = [
        name
        for name, short in (
            ("worst", limits.worst is not None and found.worst_low < limits.worst),
            ("gap", limits.gap_pp is not None and found.gap_high_pp > limits.gap_pp),
        )
        if short
    ]
    if unsure:
        return "cannot-tell", message(f"decide.unsure-{'-'.join(unsure)}", **values)
    asked = "-".join(
        name
        for name, given in (("worst", limits.worst), ("gap", limits.gap_pp))
        if given is not None
    )
    return "pass", message(f"decide.pass-{asked}", **values)


def _doubt(length: Length, run: Evidence, outcome: Outcome) -> tuple[Message, Message] | None:
    """Why the bounds are not enough, and what would help.

    Answers that cannot be trusted, or not all of them: that may fail a model but never pass it.
    """
    refuted = length.rung == run.headline and run.verdict == "unreliable"
    if refuted or length.verdict == "unreliable":
        why = message("decide.doubt-unreliable", why=run.reason if refuted else length.reason)
        return why, message("decide.settle-unreliable")
    if length.partial and outcome != "fail":
        more = "settle-resume" if run.suite is None else "settle-resume-suite"
        return message("decide.doubt-partial"), message(f"decide.{more}")
    return None


def _more(view: View, limits: Limits, seed: int, *, tasks: bool) -> Message:
    """Roughly how many answers or tasks would settle it, from the likely worst phase and gap."""
    counts, found = view.counts, view.bounds
    likely = crossfit_extremes(counts, np.random.default_rng([seed, 0x67617465]))
    if likely is None:
        return message("decide.settle-few-tasks" if tasks else "decide.settle-contexts")
    factors: list[float] = []
    helpless = False
    if limits.worst is not None and found.worst_low < limits.worst:
        bound = found.worst_low if likely.worst > limits.worst else found.worst_high
        factor = growth(bound, likely.worst, limits.worst)
        helpless |= factor is None
        factors += [] if factor is None else [factor]
    if limits.gap_pp is not None and found.gap_high_pp > limits.gap_pp:
        gap = max(0.0, likely.gap_pp)
        bound = found.gap_high_pp if gap < limits.gap_pp else found.gap_low_pp
        factor = growth(bound, gap, limits.gap_pp)
        helpless |= factor is None
        factors += [] if factor is None else [factor]
    if helpless or not factors or (tasks and max(factors) > MOST_GROWTH):
        return message("decide.settle-at-limit")
    if tasks:
        wanted = _round_up(max(factors) * counts.clusters)
        return message("decide.settle-tasks", n=max(wanted, counts.clusters + 1))
    return message("decide.settle-more", n=_round_up(max(factors) * float(counts.n.sum())))


def _round_up(value: float) -> int:
    """To two digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(1.0, value))) - 1)
    return math.ceil(value / unit) * unit


__all__ = ["Gate", "Gated", "Limits", "Outcome", "gate"]
