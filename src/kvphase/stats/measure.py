"""Answers in, verdict out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats import audit as audits
from kvphase.stats.curve import curve, extremes
from kvphase.stats.decision import Evidence, decide
from kvphase.stats.gap import Crossfit, crossfit, null_pp, raw_pp
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
    found_audit = audits.audit(answers)
    rng = np.random.default_rng([seed, 0x6B7670])
    series, candidates = _series(done, kind, modulus)
    finding = _find(series, candidates, alpha, rng)
    points = curve(screen, modulus)
    worst, best = extremes(points)
    mean = float(done.correct.mean()) if len(done) else 0.0
    fitted, over = _crossfit(done, kind, finding.period or modulus, modulus, rng)
    smallest = mde_pp(series, finding.test.tested, alpha)
    raw = raw_pp(points)
    decision = decide(
        Evidence(
            unreliable=audits.failed(found_audit),
            n=len(done),
            mean=mean,
            alpha=alpha,
            detect_pp=detect_pp,
            p_value=finding.test.p_value,
            period=finding.period,
            replicates=finding.replicates,
            gap_pp=raw,
            mde_pp=smallest,
        )
    )
    return Verdict(
        verdict=decision.verdict,
        reason=decision.reason,
        would_settle=decision.would_settle,
        measure="accuracy",
        alpha=alpha,
        modulus=modulus,
        period=finding.period if finding.replicates else None,
        p_value=finding.test.p_value,
        gap=Gap(
            raw_pp=raw,
            null_pp=null_pp(series, modulus, rng),
            crossfit_pp=fitted.pp if fitted else None,
            ci95=fitted.ci95 if fitted else None,
            over=over if fitted else None,
        ),
        mean=mean,
        worst=worst,
        best=best,
        mde_pp=smallest,
        curve=points,
        audit=found_audit,
        n=len(done),
        contexts=len(np.unique(done.context)),
        notes=(),
    )


def _series(done: Answers, kind: DesignKind, modulus: int) -> tuple[Series, tuple[int, ...]]:
    """Rows and candidate periods of a design."""
    if kind == "prefix":
        series, shared = per_prefill(done, modulus)
        return series, sweep_candidates(series, shared)
    series = per_answer(done)
    return series, screen_candidates(series)


def _find(
    series: Series, candidates: tuple[int, ...], alpha: float, rng: np.random.Generator
) -> _Finding:
    """Test; only what is significant gets a period and a replication test."""
    test = detect(series, candidates, rng)
    if test.p_value is None or test.p_value > alpha or not test.tested:
        return _Finding(test, None, replicates=False)
    period = name_period(series, test, rng)
    return _Finding(test, period, replication_p(series, period, rng) <= REPLICATION)


def _crossfit(
    done: Answers, kind: DesignKind, fold: int, modulus: int, rng: np.random.Generator
) -> tuple[Crossfit | None, str]:
    """The cross-fitted gap and what its interval is taken over."""
    cluster, over = _clusters(done, kind, modulus)
    return crossfit(done.correct.astype(np.float64), done.position % fold, cluster, rng), over


def _clusters(done: Answers, kind: DesignKind, modulus: int) -> tuple[NDArray[np.int64], str]:
    """Contexts; with fewer than eight, blocks (or cycles of the pad) inside them."""
    contexts = len(np.unique(done.context))
    if contexts >= CONTEXTS_FOR_INTERVAL:
        return done.context, "contexts"
    where = "this context" if contexts == 1 else f"these {contexts} contexts"
    if kind == "prefix":
        return cells(done.context, done.pad // modulus), f"cycles of the pad in {where}"
    return cells(done.context, done.block), f"blocks in {where}"
