"""Answers in, verdict out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.stats import audit as audits
from kvphase.stats.curve import curve, extremes
from kvphase.stats.decision import Evidence, decide
from kvphase.stats.gap import crossfit, null_pp, raw_pp
from kvphase.stats.looks import WEIGHTS, combined, weights_of
from kvphase.stats.notes import notes
from kvphase.stats.period import REPLICATION, Detection, detect, name_period, replication_p
from kvphase.stats.power import mde_pp
from kvphase.stats.series import (
    Series,
    cells,
    per_answer,
    per_prefill,
    screen_candidates,
    sweep_candidates,
)
from kvphase.types import Arm, Gap, Look, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.types import Answers, DesignKind

CONTEXTS_FOR_INTERVAL = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """The test's outcome and what follows from it."""

    test: Detection
    p_value: float | None
    """Over all looks taken."""
    period: int | None
    """The period by the period rule; None unless significant."""
    replicates: bool
    looks: tuple[Look, ...]
    seen: int
    """Answers that were tested, from the first on."""


def measure(
    answers: Answers,
    *,
    kind: DesignKind = "insequence",
    modulus: int = 8,
    alpha: float = 0.005,
    detect_pp: float = 10.0,
    seed: int = 0,
    looks: Sequence[int] = (),
) -> Verdict:
    """Does accuracy depend on the phase of the target, and how much?

    Only arm ``screen`` decides; arms ``repeat``, ``cold`` and ``alone`` feed the audit. Unfinished
    answers (``correct`` -1) enter no accuracy and are counted.

    In ``insequence`` answers are exchangeable within (context, block) and periods 2 to 16, 24, 32,
    64 and 128 are candidates, whatever ``modulus`` is; in ``prefix`` each (context, pad) is one
    unit, and divisors of ``modulus`` are candidates. A candidate needs two full cycles of the
    positions, of the pads in ``prefix``.

    With ``looks`` the test is taken before all answers are there (`kvphase.stats.looks`). Where an
    early look finds something, level, curve and gap come only from the contexts asked after it:
    those that made the look succeed flatter it. Answers that end between two looks are looked at
    once more with all the weight that is left.

    Args:
        answers: Rows in ask order.
        kind: The design the answers come from.
        modulus: Residues of the curve and of the raw gap.
        alpha: Level of the permutation test.
        detect_pp: Gap, in percentage points, that a run must be able to find before "not detected"
            may be said.
        seed: Of the permutations and the split; the same seed gives the same verdict.
        looks: Numbers of contexts (labelled from 0 in ask order) at which the run looks; none or
            one for a single test of all answers.

    Returns:
        The verdict. Any number of answers, none included, gives one.
    """
    screen = answers.where(answers.arm == Arm.SCREEN.value)
    done = screen.where(screen.correct >= 0)
    rng = np.random.default_rng([seed, 0x6B7670])
    finding = find(done, looks, kind=kind, modulus=modulus, alpha=alpha, rng=rng)
    shown = done.where(np.arange(len(done)) >= finding.seen) if _early(finding, done) else done
    points = curve(shown, modulus)
    series, candidates, shared = _series(shown, kind, modulus)
    gap = _gap(shown, kind, finding.period or modulus, modulus, raw_pp(points), rng)
    gap = replace(gap, null_pp=null_pp(series, modulus, rng))
    worst, best = extremes(points)
    checked = audits.audit(answers)
    last = finding.looks[-1].weight if finding.looks else 1.0
    seen = Evidence(
        unreliable=audits.failed(checked),
        n=len(shown),
        mean=float(shown.correct.mean()) if len(shown) else 0.0,
        alpha=alpha,
        detect_pp=detect_pp,
        p_value=finding.p_value,
        period=finding.period,
        replicates=finding.replicates,
        gap=_spoken(gap),
        mde_pp=mde_pp(series, candidates, alpha * last) if len(points) > 1 else None,
        periods=finding.test.tested,
    )
    decision = decide(seen)
    return Verdict(
        verdict=decision.verdict,
        reason=decision.reason,
        would_settle=decision.would_settle,
        measure="accuracy",
        alpha=alpha,
        modulus=modulus,
        period=finding.period if finding.replicates else None,
        p_value=seen.p_value,
        gap=gap,
        mean=seen.mean,
        worst=worst,
        best=best,
        mde_pp=seen.mde_pp,
        curve=points,
        audit=checked,
        n=len(shown),
        contexts=len(np.unique(shown.context)),
        notes=(
            *filter(None, [audits.unrepeatable(checked)]),
            *notes(screen, kind=kind, modulus=modulus, shared=shared, alpha=alpha, rng=rng),
        ),
        looks=finding.looks,
        fresh=_early(finding, done),
    )


def relevel(
    verdict: Verdict, later: Answers, *, kind: DesignKind = "insequence", seed: int = 0
) -> Verdict:
    """A phase-sensitive verdict with level, curve and gap taken from other answers.

    Args:
        verdict: What was found, with its period and p value; these stay as they are.
        later: Answers that had no part in finding it, whatever their arm.
        kind: The design they come from.
        seed: Of the split and of the permutations behind ``null_pp``.
    """
    done = later.where(later.correct >= 0)
    rng = np.random.default_rng([seed, 0x6B7671])
    modulus = verdict.modulus
    points = curve(done, modulus)
    series, candidates, _ = _series(done, kind, modulus)
    gap = _gap(done, kind, verdict.period or modulus, modulus, raw_pp(points), rng)
    gap = replace(gap, null_pp=null_pp(series, modulus, rng))
    worst, best = extremes(points)
    mean = float(done.correct.mean()) if len(done) else 0.0
    seen = Evidence(
        unreliable=None,
        n=len(done),
        mean=mean,
        alpha=verdict.alpha,
        detect_pp=0.0,
        p_value=verdict.p_value,
        period=verdict.period,
        replicates=True,
        gap=_spoken(gap),
        mde_pp=None,
    )
    return replace(
        verdict,
        reason=decide(seen).reason,
        gap=gap,
        mean=mean,
        worst=worst,
        best=best,
        mde_pp=mde_pp(series, candidates, verdict.alpha) if len(points) > 1 else None,
        curve=points,
        n=len(done),
        contexts=len(np.unique(done.context)),
        fresh=True,
    )


def find(
    done: Answers,
    looks: Sequence[int] = (),
    *,
    kind: DesignKind,
    modulus: int,
    rng: np.random.Generator,
    alpha: float = 0.005,
) -> Finding:
    """The test of `measure` and nothing else: no curve, no gap, no notes.

    Args:
        done: Finished answers of arm ``screen`` in ask order.
        looks: As for `measure`.
        kind: As for `measure`.
        modulus: As for `measure`.
        rng: Source of the permutations.
        alpha: As for `measure`.

    Returns:
        What was found; ``replicates`` is whether `measure` would say ``phase-sensitive`` of
        answers that pass the audit.
    """
    return _look(done, _ends(done, looks), kind, modulus, alpha, rng)


def found_early(
    answers: Answers,
    looks: Sequence[int],
    *,
    kind: DesignKind,
    modulus: int,
    alpha: float = 0.005,
    seed: int = 0,
) -> bool:
    """Whether the looks that ``answers`` hold are enough to stop asking for detection's sake.

    Args:
        answers: Of all contexts up to a look.
        looks: As for `measure`, cut after that look.
        kind: As for `measure`.
        modulus: As for `measure`.
        alpha: As for `measure`.
        seed: As for `measure`: it decides the permutations, so that both say the same.
    """
    screen = answers.where((answers.arm == Arm.SCREEN.value) & (answers.correct >= 0))
    rng = np.random.default_rng([seed, 0x6B7670])
    ends = [int((screen.context < look).sum()) for look in looks]
    finding = _look(screen, list(zip(ends, WEIGHTS, strict=False)), kind, modulus, alpha, rng)
    return finding.replicates


def _early(finding: Finding, done: Answers) -> bool:
    """Whether a look found something and answers followed it."""
    return finding.replicates and finding.seen < len(done)


def _ends(done: Answers, looks: Sequence[int]) -> list[tuple[int, float]]:
    """Answers at each look, and its weight; a run that was cut ends in a look of its own."""
    weights = weights_of(looks) if len(looks) > 1 else (1.0,)
    if len(looks) < 2 or not len(done):
        return [(len(done), 1.0)]
    asked = int(done.context.max()) + 1
    ends = [
        (int((done.context < look).sum()), weight)
        for look, weight in zip(looks, weights, strict=True)
        if look < asked or look == looks[-1] == asked
    ]
    if not ends or ends[-1][0] < len(done):
        ends.append((len(done), 1.0 - sum(weight for _, weight in ends)))
    return ends


def _look(
    done: Answers,
    ends: Sequence[tuple[int, float]],
    kind: DesignKind,
    modulus: int,
    alpha: float,
    rng: np.random.Generator,
) -> Finding:
    """Look after look, until one finds something that repeats from cycle to cycle.

    What is significant but does not repeat is looked at again when there is more of it: few cycles
    show little.
    """
    taken: list[Look] = []
    for end, weight in ends:
        part = done.where(np.arange(len(done)) < end)
        series, candidates, _ = _series(part, kind, modulus)
        test = detect(series, candidates, rng)
        taken.append(Look(end, test.p_value, weight))
        p = combined([look.p_value for look in taken], [look.weight for look in taken])
        period, replicates = None, False
        if test.tested and p is not None and p <= alpha:
            period = name_period(series, test, rng)
            replicates = replication_p(series, period, rng) <= REPLICATION
        if replicates:
            break
    return Finding(test, p, period, replicates, _several(taken), end)


def _several(taken: Sequence[Look]) -> tuple[Look, ...]:
    """The looks, if there was more than a single test of everything."""
    return () if len(taken) == 1 and taken[0].weight == 1.0 else tuple(taken)


def _series(done: Answers, kind: DesignKind, modulus: int) -> tuple[Series, tuple[int, ...], int]:
    """Rows, candidate periods, and the modulus that the design can resolve."""
    if kind == "prefix":
        series, shared = per_prefill(done, modulus)
        return series, sweep_candidates(series, shared), shared
    series = per_answer(done)
    return series, screen_candidates(series), modulus


def _gap(
    done: Answers,
    kind: DesignKind,
    fold: int,
    modulus: int,
    raw: float,
    rng: np.random.Generator,
) -> Gap:
    """The raw gap and the cross-fitted one, folded by the period."""
    cluster, over = _clusters(done, kind, modulus)
    fitted = crossfit(done.correct.astype(np.float64), done.position % fold, cluster, rng)
    if fitted is None:
        return Gap(raw_pp=raw, null_pp=0.0)
    return Gap(raw_pp=raw, null_pp=0.0, crossfit_pp=fitted.pp, ci95=fitted.ci95, over=over)


def _spoken(gap: Gap) -> str:
    """The gap for a sentence: cross-fitted where it can be, else raw."""
    if gap.crossfit_pp is None or gap.ci95 is None:
        return message("verdict.gap.raw", pp=gap.raw_pp)
    low, high = gap.ci95
    return f"{gap.crossfit_pp:.1f} [{low:.1f}, {high:.1f}]"


def _clusters(done: Answers, kind: DesignKind, modulus: int) -> tuple[NDArray[np.int64], str]:
    """Contexts; with fewer than eight, blocks (or cycles of the pad) inside them."""
    contexts = len(np.unique(done.context))
    if contexts >= CONTEXTS_FOR_INTERVAL:
        return done.context, message("verdict.over.contexts")
    one = "-one" if contexts == 1 else ""
    if kind == "prefix":
        cycles = cells(done.context, done.pad // modulus)
        return cycles, message(f"verdict.over.cycles{one}", contexts=contexts)
    blocks = cells(done.context, done.block)
    return blocks, message(f"verdict.over.blocks{one}", contexts=contexts)
