"""Answers in, verdict out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats import audit as audits
from kvphase.stats.curve import curve, extremes
from kvphase.stats.decision import Evidence, decide
from kvphase.stats.gap import crossfit, null_pp, raw_pp
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
from kvphase.types import Arm, Gap, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.types import Answers, DesignKind

CONTEXTS_FOR_INTERVAL = 8


@dataclass(frozen=True, slots=True)
class _Finding:
    """The test's outcome and what follows from it."""

    test: Detection
    period: int | None
    """The period by the period rule; None unless significant."""
    replicates: bool


def measure(
    answers: Answers,
    *,
    kind: DesignKind = "insequence",
    modulus: int = 8,
    alpha: float = 0.005,
    detect_pp: float = 10.0,
    seed: int = 0,
) -> Verdict:
    """Does accuracy depend on the phase of the target, and how much?

    Only arm ``screen`` decides; arms ``repeat`` and ``cold`` feed the audit. Unfinished answers
    (``correct`` -1) enter no accuracy and are counted.

    In ``insequence`` answers are exchangeable within (context, block) and periods 2 to 16, 24, 32,
    64 and 128 are candidates, whatever ``modulus`` is; in ``prefix`` each (context, pad) is one
    unit, and divisors of ``modulus`` are candidates. A candidate needs two full cycles of the
    positions, of the pads in ``prefix``.

    Args:
        answers: Rows in ask order.
        kind: The design the answers come from.
        modulus: Residues of the curve and of the raw gap.
        alpha: Level of the permutation test.
        detect_pp: Gap, in percentage points, that a run must be able to find before "not detected"
            may be said.
        seed: Of the permutations and the split; the same seed gives the same verdict.

    Returns:
        The verdict. Any number of answers, none included, gives one.
    """
    screen = answers.where(answers.arm == Arm.SCREEN.value)
    done = screen.where(screen.correct >= 0)
    rng = np.random.default_rng([seed, 0x6B7670])
    series, candidates, shared = _series(done, kind, modulus)
    finding = _find(series, candidates, alpha, rng)
    points = curve(done, modulus)
    gap = _gap(done, kind, finding.period or modulus, modulus, raw_pp(points), rng)
    gap = replace(gap, null_pp=null_pp(series, modulus, rng))
    worst, best = extremes(points)
    checked = audits.audit(answers)
    seen = Evidence(
        unreliable=audits.failed(checked),
        n=len(done),
        mean=float(done.correct.mean()) if len(done) else 0.0,
        alpha=alpha,
        detect_pp=detect_pp,
        p_value=finding.test.p_value,
        period=finding.period,
        replicates=finding.replicates,
        gap=_spoken(gap),
        mde_pp=mde_pp(series, candidates, alpha) if len(points) > 1 else None,
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
        n=len(done),
        contexts=len(np.unique(done.context)),
        notes=notes(screen, kind=kind, modulus=modulus, shared=shared, alpha=alpha, rng=rng),
    )


def _series(done: Answers, kind: DesignKind, modulus: int) -> tuple[Series, tuple[int, ...], int]:
    """Rows, candidate periods, and the modulus that the design can resolve."""
    if kind == "prefix":
        series, shared = per_prefill(done, modulus)
        return series, sweep_candidates(series, shared), shared
    series = per_answer(done)
    return series, screen_candidates(series), modulus


def _find(
    series: Series, candidates: tuple[int, ...], alpha: float, rng: np.random.Generator
) -> _Finding:
    """Test; only what is significant gets a period and a replication test."""
    test = detect(series, candidates, rng)
    if test.p_value is None or test.p_value > alpha or not test.tested:
        return _Finding(test, None, replicates=False)
    period = name_period(series, test, rng)
    return _Finding(test, period, replication_p(series, period, rng) <= REPLICATION)


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
        return f"{gap.raw_pp:.1f} (raw)"
    low, high = gap.ci95
    return f"{gap.crossfit_pp:.1f} [{low:.1f}, {high:.1f}]"


def _clusters(done: Answers, kind: DesignKind, modulus: int) -> tuple[NDArray[np.int64], str]:
    """Contexts; with fewer than eight, blocks (or cycles of the pad) inside them."""
    contexts = len(np.unique(done.context))
    if contexts >= CONTEXTS_FOR_INTERVAL:
        return done.context, "contexts"
    where = "this context" if contexts == 1 else f"these {contexts} contexts"
    if kind == "prefix":
        return cells(done.context, done.pad // modulus), f"cycles of the pad in {where}"
    return cells(done.context, done.block), f"blocks in {where}"
