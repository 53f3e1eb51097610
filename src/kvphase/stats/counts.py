"""A verdict from counts by residue alone: published curves, tables of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.stats.curve import extremes, point
from kvphase.stats.decision import Decision, Evidence, decide
from kvphase.stats.gap import null_pp, raw_pp
from kvphase.stats.period import REPLICATION, Detection, added_p, detect, name_period, replication_p
from kvphase.stats.power import mde_pp
from kvphase.stats.series import Series, counted
from kvphase.types import Audit, Gap, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ANSWERS = 10**9
"""The hypergeometric draw is exact below this."""


@dataclass(frozen=True, slots=True)
class _Finding:
    test: Detection
    period: int | None = None
    replication: float | None = None
    unresolved: bool = False
    """The pattern fills the whole cycle of residues: nothing shows whether it repeats."""


def measure_counts(
    residue: Sequence[int],
    n: Sequence[int],
    correct: Sequence[int],
    *,
    alpha: float = 0.005,
    detect_pp: float = 10.0,
    seed: int = 0,
) -> Verdict:
    """A verdict from right answers by residue, one entry a residue.

    With M residues the divisors of M are candidates; the null deals the right answers out anew
    over all answers (multivariate hypergeometric). Period M itself is tested too but never named:
    counts hold one cycle of it, and what one cycle shows may be anything. Answers count as
    independent, which counts cannot tell; a note names the largest design effect at which the
    verdict would stand.

    Args:
        residue: M consecutive integers in any order.
        n: Answers at each.
        correct: Right ones among them.
        alpha: Level of the test.
        detect_pp: Gap, in percentage points, that must be detectable for "not detected".
        seed: Of the permutations.

    Raises:
        UsageError: a single residue, residues that repeat or leave some out, counts that are
            negative, or more right answers than answers.
    """
    series = _series(residue, n, correct)
    size = len(series)
    rng = np.random.default_rng([seed, 0x636F756E])
    finding = _find(series, size, alpha, rng)
    points = tuple(
        point(int(r), int(w), int(y))
        for r, w, y in zip(series.phase, series.weight, series.outcome, strict=True)
        if w
    )
    total = int(series.weight.sum())
    mean = float(series.outcome.sum()) / total if total else 0.0
    smallest = mde_pp(series, divisors(size), alpha)
    raw = raw_pp(points)
    replicates = finding.replication is not None and finding.replication <= REPLICATION
    seen = Evidence(
        unreliable=None,
        n=total,
        mean=mean,
        alpha=alpha,
        detect_pp=detect_pp,
        p_value=finding.test.p_value,
        period=finding.period,
        replicates=replicates,
        gap=f"{raw:.1f}",
        periods=tuple(p for p in finding.test.tested if p < size),
        mde_pp=smallest,
        more="answers",
    )
    decision = _unresolved(seen, size) if finding.unresolved else decide(seen)
    worst, best = extremes(points)
    return Verdict(
        verdict=decision.verdict,
        reason=decision.reason,
        would_settle=decision.would_settle,
        measure="accuracy",
        alpha=alpha,
        modulus=size,
        period=finding.period if decision.verdict == "phase-sensitive" else None,
        p_value=finding.test.p_value,
        gap=Gap(raw_pp=raw, null_pp=null_pp(series, size, rng)),
        mean=mean,
        worst=worst,
        best=best,
        mde_pp=smallest,
        curve=points,
        audit=Audit(asked=total),
        n=total,
        contexts=1,
        notes=_notes(series, finding, decision, seen),
    )


def _series(residue: Sequence[int], n: Sequence[int], correct: Sequence[int]) -> Series:
    """Checked and sorted counts."""
    if not len(residue) == len(n) == len(correct):
        raise UsageError(message("error.counts-lengths"))
    if len(residue) < 2:
        raise UsageError(message("error.counts-single"))
    if len(set(residue)) < len(residue):
        raise UsageError(message("error.counts-twice"))
    if max(residue) - min(residue) + 1 != len(residue):
        raise UsageError(message("error.counts-holes", low=min(residue), high=max(residue)))
    for r, of, right in zip(residue, n, correct, strict=True):
        if not 0 <= right <= of:
            raise UsageError(message("error.counts-right", residue=r, right=right, of=of))
    _must_be_dealable(sum(n))
    order = np.argsort(np.array(residue))
    columns = (np.array(values, dtype=np.int64)[order] for values in (residue, n, correct))
    return counted(*columns)


def divisors(size: int) -> list[int]:
    """Divisors of ``size`` from 2 up, ``size`` included."""
    return [p for p in range(2, size + 1) if size % p == 0]


def _must_be_dealable(total: int) -> None:
    if total >= MOST_ANSWERS:
        raise UsageError(message("error.counts-many", total=total, most=MOST_ANSWERS))


def _find(series: Series, size: int, alpha: float, rng: np.random.Generator) -> _Finding:
    """Test the divisors of M, and M itself as "any difference at all".

    What the whole cycle adds to its best divisor counts at the same level as any finding: a true
    period is then taken for unresolved in ``alpha`` of the tables, however large they are.
    """
    test = detect(series, divisors(size), rng)
    if test.p_value is None or test.p_value > alpha or not test.tested:
        return _Finding(test)
    resolvable = [i for i, p in enumerate(test.tested) if p < size]
    if not resolvable:
        return _Finding(test, unresolved=True)
    smaller = Detection(
        test.p_value,
        None,
        tuple(test.tested[i] for i in resolvable),
        tuple(test.log_p[i] for i in resolvable),
    )
    period = name_period(series, smaller, rng)
    if added_p(series, size, period, rng, enough=20) <= alpha:
        return _Finding(test, period, unresolved=True)
    return _Finding(test, period, replication_p(series, period, rng))


def _unresolved(seen: Evidence, size: int) -> Decision:
    return Decision(
        "inconclusive",
        message("verdict.reason.unresolved", residues=size, p=seen.p_value, gap=seen.gap),
        message("verdict.settle.unresolved", twice=2 * size),
    )


def _notes(
    series: Series, finding: _Finding, decision: Decision, seen: Evidence
) -> tuple[str, ...]:
    notes = [message("note.independent")]
    effect = _design_effect(series, finding, decision, seen)
    if effect is not None:
        notes.append(message("note.design-effect", effect=effect))
    return tuple(notes)


def _design_effect(
    series: Series, finding: _Finding, decision: Decision, seen: Evidence
) -> float | None:
    """Largest inflation of the variance under which the verdict stays what it is.

    A design effect D divides the score statistic by D and multiplies the detectable gap by the
    square root of D. For a finding, D is the statistic over its Bonferroni critical value.
    """
    from scipy import special

    from kvphase.stats.score import scores

    if decision.verdict == "not-detected" and seen.mde_pp:
        return (seen.detect_pp / seen.mde_pp) ** 2
    if decision.verdict != "phase-sensitive" or finding.period is None:
        return None
    one = scores(series, (finding.period,))
    statistic = float(one.statistics(one.observed(series.outcome))[0, 0])
    critical = float(special.chdtri(int(one.ranks[0]), seen.alpha / len(finding.test.tested)))
    return statistic / critical if statistic > critical else None
