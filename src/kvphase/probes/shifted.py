"""What the answers of a shift run say: pure functions of the answers and of what was planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kvphase.catalogue import message
from kvphase.probes.shift_columns import (
    FEW,
    complete,
    level_of,
    measure_of,
    outcome,
    residue_means,
    with_measures,
)
from kvphase.stats import pads
from kvphase.stats.audit import NEAR_TIE
from kvphase.stats.power import mde_pp
from kvphase.stats.series import Series
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.types import Answers, VerdictName

ALPHA = 0.005
DETECT_PP = 10.0
MARGIN_PP = 10.0
"""Deviation, in percentage points, up to which the tail control counts as flat."""
CONTROL = 0.05
"""P value of the control at which the marked span's position is no longer the explanation."""
GO_ON = 0.3
"""P value of the first eight shifts up to which eight more are asked. One weak shift of four comes
out as periodic in 5 of 28 arrangements by chance: eight shifts never decide, so they must not be
stopped too early. Stopping here finds nothing and so raises no error rate."""
HIGH, LOW = 0.97, 0.03

TailName = Literal["flat", "not-flat", "inconclusive"]


@dataclass(frozen=True, slots=True)
class TailFound:
    """The control: filler only behind the marked span."""

    status: TailName
    largest_pp: float
    """Largest deviation of a residue of the question's position, percentage points."""
    upper_pp: float
    """Its upper 95% bound, simultaneous over residues."""
    p_value: float


@dataclass(frozen=True, slots=True)
class Slot:
    """All shifts of one residue modulo the period."""

    shifts: tuple[int, ...]
    residue: int | None
    """Of the marked span's position; None for several prompts whose positions differ."""
    level: float
    """Mean probability of the right answer, share of right answers, or of the commonest answer."""


@dataclass(frozen=True, slots=True)
class Found:
    """The verdict over a shift run."""

    verdict: VerdictName
    reason: str
    would_settle: str | None
    measure: str
    """``score``, ``right``, ``groups`` or ``mixed``."""
    shifts: int
    p_value: float | None
    period: int | None
    slots: tuple[Slot, ...]
    gap_pp: float | None
    """Best minus worst residue without the drift over the pads, percentage points."""
    swing: float | None
    """The same of the score, natural logarithm of the odds; None without scores."""
    mde_pp: float | None
    tail: TailFound | None
    agree_p: float | None
    """P value that the fillers share one pattern; None with fewer than three."""
    flips: tuple[bool, ...]
    """Whether a task's answers differ between shifts (right and wrong where one is expected)."""
    mean: float | None
    """Of right answers over all shifts; None without expected answers."""
    worst: tuple[int, float] | None
    """The shift with the fewest right answers, and their share."""
    notes: tuple[str, ...]


def judged(plan: dict[str, Any], answers: Answers) -> Found:
    """The verdict over all tasks, fillers and shifts that were answered at every filler."""
    tasks = with_measures(plan["tasks"], answers)
    rng = np.random.default_rng([plan["seed"], 0x7368])
    count = complete(plan, answers)
    outcomes = [outcome(tasks, i, answers, Arm.SCREEN, count) for i in range(len(tasks))]
    whole = [np.mean(one, axis=0) for one in outcomes] if count else []
    found = pads.swept(whole, rng) if count else pads.Swept(None, None, replicates=False)
    measures = {measure_of(task) for task in tasks}
    p, alpha = found.p_value, ALPHA
    families = _families(outcomes) if count else []
    levels = [level_of(tasks, i, answers, Arm.SCREEN, count) for i in range(len(tasks))]
    agree = None
    period = None
    if p is not None and p <= alpha and count > FEW and found.period is not None:
        agree = pads.families_agree(families, found.period)
        fillers_differ = agree is not None and agree > pads.REPLICATION
        period = found.period if found.replicates and not fillers_differ else None
    shown = found.period if p is not None and p <= alpha and count > FEW else None
    gap, slots = _slots(tasks, levels, shown, plan)
    swing = _swing(tasks, whole, shown)
    tail = _tail(tasks, answers, period, rng) if period else None
    asked = _asked(tasks, answers)
    return _decided(
        _Seen(
            p=p,
            count=count,
            best=found.period,
            period=period,
            replicates=found.replicates,
            agree=agree,
            gap=gap,
            swing=swing,
            mde=_mde(tasks, levels, count) if count else None,
            level=float(np.mean([one.mean() for one in levels])) if count else 0.0,
            varies=bool(pads.joined(whole).shape[1]) if count else False,
            tail=tail,
            slots=slots,
            measure=measures.pop() if len(measures) == 1 else "mixed",
            unfinished=int((answers.correct < 0).sum()),
            asked=len(answers),
        ),
        asked,
        _notes(plan, answers),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the verdict rests on."""

    p: float | None
    count: int
    best: int | None
    period: int | None
    replicates: bool
    agree: float | None
    gap: float | None
    swing: float | None
    mde: float | None
    level: float
    varies: bool
    tail: TailFound | None
    slots: tuple[Slot, ...]
    measure: str
    unfinished: int
    asked: int


def _families(outcomes: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """All tasks' columns for each filler that every task has."""
    least = min(len(one) for one in outcomes)
    return [np.concatenate([one[f] for one in outcomes], axis=1) for f in range(least)]


def _slots(
    tasks: Sequence[dict[str, Any]],
    levels: Sequence[NDArray[np.float64]],
    period: int | None,
    plan: dict[str, Any],
) -> tuple[float | None, tuple[Slot, ...]]:
    """Gap and residues of a period, the drift over the pads taken out, the mean left in."""
    if period is None:
        return None, ()
    mean = np.mean(levels, axis=0)
    n = len(mean)
    profile = residue_means(mean, period)
    one = len(tasks) == 1
    slots = [
        Slot(
            shifts=tuple(range(r, n, period)),
            residue=(tasks[0]["target"] + plan["base"] + r) % period if one else None,
            level=float(profile[r]),
        )
        for r in range(period)
    ]
    # Tasks have their weak shifts at residues of their own: each has a gap of its own.
    gaps = [float(np.ptp(residue_means(level, period))) for level in levels]
    return 100 * float(np.mean(gaps)), tuple(slots)


def _swing(
    tasks: Sequence[dict[str, Any]], whole: Sequence[NDArray[np.float64]], period: int | None
) -> float | None:
    """Largest best-minus-worst of the scores over tasks; None without scores."""
    if period is None:
        return None
    swings = [
        float(np.ptp(residue_means(one[:, 0] + 10.0, period)))
        for task, one in zip(tasks, whole, strict=True)
        if measure_of(task) == "score"
    ]
    return max(swings, default=None)


def _mde(
    tasks: Sequence[dict[str, Any]], levels: Sequence[NDArray[np.float64]], count: int
) -> float | None:
    """Gap of one weak residue, the same for all tasks, that would have been found."""
    n, t = count, len(levels)
    trend = pads.trend_of(n)
    nuisance: NDArray[np.float64] = np.kron(np.eye(t), trend).astype(np.float64)
    values = np.concatenate([level - trend @ (trend.T @ level) for level in levels])
    if float(np.square(values).sum()) <= 1e-18:
        return None
    # Right and wrong vary by their share; a probability does so alike at every level, as they do
    # at one half.
    scored = [measure_of(task) == "score" for task in tasks]
    shares = [0.5 if score else level.mean() for score, level in zip(scored, levels, strict=True)]
    series = Series(
        phase=np.tile(np.arange(n), t),
        along=np.tile(np.arange(n), t),
        outcome=values,
        weight=np.ones(n * t),
        stratum=np.repeat(np.arange(t), n),
        fitted=np.repeat(shares, n),
        nuisance=nuisance,
    )
    # After eight shifts a hint is enough to be asked on; only with sixteen is it the verdict's.
    return mde_pp(series, pads.periods_of(n), GO_ON if count == FEW else ALPHA)


def _tail(
    tasks: Sequence[dict[str, Any]], answers: Answers, period: int, rng: np.random.Generator
) -> TailFound | None:
    """Deviations at the question's residues, as `kvphase.stats.tail` bounds them."""
    from scipy import special

    have = [i for i, task in enumerate(tasks) if task["tail"]]
    control = answers.arm == Arm.TAIL.value
    counts = [int(((answers.item == i) & control).sum()) for i in have]
    n = min(counts, default=0)
    if n < 2 * period:
        return None
    whole = [outcome(tasks, i, answers, Arm.TAIL, n)[0] for i in have]
    p = pads.single(whole, period, rng)
    level = np.mean([level_of(tasks, i, answers, Arm.TAIL, n) for i in have], axis=0)
    left = pads.detrended(level[:, None])[:, 0]
    means = residue_means(left + 1.0, period)
    size = np.abs(means - means.mean())
    rest = left - (means - means.mean())[np.arange(n) % period]
    free = max(1, n - period - 2)
    least = (1.0 - 1.0 / period) / n / len(have) if left.any() else 0.0
    error = max(float(np.sqrt(np.square(rest).sum() / free / (n / period))), 0.0)
    error = error if _continuous(tasks, have) else max(error, least)
    upper = 100 * float(size.max() + special.stdtrit(free, 1 - 0.05 / period) * error)
    largest = 100 * float(size.max())
    status: TailName = "flat" if upper <= MARGIN_PP else "inconclusive"
    if p <= CONTROL and largest > MARGIN_PP / 2:
        status = "not-flat"
    return TailFound(status, largest, min(100.0, upper), p)


def _continuous(tasks: Sequence[dict[str, Any]], have: Sequence[int]) -> bool:
    return all(measure_of(tasks[i]) == "score" for i in have)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a reader of a suite wants first."""

    flips: tuple[bool, ...]
    mean: float | None
    worst: tuple[int, float] | None


def _asked(tasks: Sequence[dict[str, Any]], answers: Answers) -> _Asked:
    """Which tasks flip, the mean, and the worst shift."""
    screen = answers.where(answers.arm == Arm.SCREEN.value)
    flips = []
    for i, task in enumerate(tasks):
        mine = screen.where(screen.item == i)
        values = mine.text if task["expected"] is None else mine.correct
        flips.append(len(np.unique(values)) > 1)
    graded = [i for i, task in enumerate(tasks) if task["expected"] is not None]
    done = screen.where(np.isin(screen.item, graded) & (screen.correct >= 0))
    if not len(done):
        return _Asked(tuple(flips), None, None)
    names = np.unique(done.pad)
    shares = [float(done.correct[done.pad == pad].mean()) for pad in names]
    at = int(np.argmin(shares))
    return _Asked(tuple(flips), float(done.correct.mean()), (int(names[at] - names[0]), shares[at]))


def _notes(plan: dict[str, Any], answers: Answers) -> tuple[str, ...]:
    """What a reader should know besides the verdict."""
    notes: list[str] = []
    cold = answers.where(answers.arm == Arm.COLD.value)
    for item, pad, text in zip(cold.item, cold.pad, cold.text, strict=True):
        first = (answers.item == item) & (answers.pad == pad) & (answers.block == 0)
        warm = answers.text[first & (answers.arm == Arm.SCREEN.value)]
        if len(warm) and warm[0] != text:
            notes.append(message("shift.note-cold"))
    if cut := int((answers.correct < 0).sum()):
        notes.append(message("shift.note-cut", cut=cut, asked=len(answers)))
    notes += _unscored(plan, answers)
    if not any(task["tail"] for task in plan["tasks"]):
        notes.append(message("shift.note-no-tail"))
    return tuple(notes)


def _unscored(plan: dict[str, Any], answers: Answers) -> list[str]:
    """What to say of answers without a score where the score was to be the measure."""
    tasks = plan["tasks"]
    lost: list[str] = []
    told = [i for i, task in enumerate(with_measures(tasks, answers)) if task["scored"]]
    if never := sum(task["scored"] for task in tasks) - len(told):
        lost.append(message("shift.note-no-scores", count=never, tasks=len(tasks)))
    mine = np.isnan(answers.logprob[np.isin(answers.item, told)])
    if mine.any():
        lost.append(message("shift.note-unscored", missing=int(mine.sum()), asked=len(mine)))
    return lost


def _decided(seen: _Seen, asked: _Asked, notes: tuple[str, ...]) -> Found:
    """The rules in order; the first that applies decides."""
    verdict, reason, settle = _verdict(seen)
    named = seen.period if verdict == "phase-sensitive" else None
    return Found(
        verdict=verdict,
        reason=reason,
        would_settle=settle,
        measure=seen.measure,
        shifts=seen.count,
        p_value=seen.p,
        period=named,
        slots=seen.slots if named or verdict == "unreliable" else (),
        gap_pp=seen.gap,
        swing=seen.swing,
        mde_pp=seen.mde,
        tail=seen.tail,
        agree_p=seen.agree,
        flips=asked.flips,
        mean=asked.mean,
        worst=asked.worst,
        notes=notes,
    )


def _verdict(seen: _Seen) -> tuple[VerdictName, str, str | None]:
    if not seen.count:
        return "inconclusive", message("shift.reason-few"), message("shift.settle-few")
    if seen.asked and seen.unfinished > 0.05 * seen.asked:
        cut = message("shift.reason-cut", cut=seen.unfinished, asked=seen.asked)
        return "unreliable", cut, message("shift.settle-cut")
    significant = seen.p is not None and seen.p <= ALPHA and seen.count > FEW
    if significant:
        return _significant(seen)
    if not seen.varies:
        return _constant(seen)
    if seen.mde is not None and seen.mde <= DETECT_PP:
        key = "shift.reason-not-detected"
        return "not-detected", message(key, n=seen.count, p=seen.p, mde=seen.mde), None
    key = "shift.reason-inconclusive" if seen.mde is not None else "shift.reason-unknown"
    settle = message("shift.settle-full" if seen.count == FEW else "shift.settle-suite")
    values = {"n": seen.count, "p": seen.p, "mde": seen.mde or 0.0, "detect": DETECT_PP}
    return "inconclusive", message(key, **values), settle


def _significant(seen: _Seen) -> tuple[VerdictName, str, str | None]:
    values = {"period": seen.best, "p": seen.p, "gap": seen.gap or 0.0}
    if seen.period is None:
        fillers = seen.replicates and seen.agree is not None
        key = "shift.reason-fillers" if fillers else "shift.reason-aperiodic"
        return "aperiodic", message(key, **values), None
    if seen.swing is not None and seen.swing < NEAR_TIE and seen.measure == "score":
        tiny = message("shift.reason-tiny", swing=seen.swing, least=NEAR_TIE, **values)
        return "not-detected", tiny, None
    tail = seen.tail
    if (
        tail is not None
        and tail.status == "not-flat"
        and 2 * tail.largest_pp >= (seen.gap or 0) / 2
    ):
        key = "shift.reason-question"
        return "unreliable", message(key, tail=tail.p_value, **values), message("shift.settle-tail")
    key = "shift.reason-groups" if seen.measure == "groups" else "shift.reason-phase"
    return "phase-sensitive", message(key, **values), None


def _constant(seen: _Seen) -> tuple[VerdictName, str, str | None]:
    """Nothing varies between the shifts."""
    values = {"n": seen.count}
    if seen.measure == "score" and seen.level > LOW:
        return "not-detected", message("shift.reason-not-detected", p=1.0, mde=0.0, **values), None
    if seen.measure == "groups":
        return "saturated", message("shift.reason-same", **values), message("shift.settle-same")
    if LOW < seen.level < HIGH:
        return "saturated", message("shift.reason-steady", **values), message("shift.settle-same")
    key = "shift.reason-right" if seen.level >= HIGH else "shift.reason-wrong"
    return "saturated", message(key, **values), message("shift.settle-same")
