"""What is measured on every member of a family of models: the same questions for all.

Two designs, as `kvphase check` asks them: *prefix padding*, the published protocol, all records
moved together over 48 pads, whose answers decide; and *in-sequence* beside it. Both curves are
drawn modulo 24, which shows strides of 4, 6, 8 and 12 on one axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from kvphase.lab.batches import answer, plan
from kvphase.probes.design import NeedleDesign
from kvphase.runs.settings import PROBES
from kvphase.stats import measure
from kvphase.types import DesignKind

if TYPE_CHECKING:
    from kvphase.lab.transformer import Decoder
    from kvphase.probes.needle import NeedlePlan
    from kvphase.types import Answers, Verdict

__all__ = ["AXIS", "NAMES", "PRIMARY", "SEED", "Measured", "gap_of", "measured", "rounded"]

AXIS = 24
"""Residues of every curve: a common multiple of the strides 4, 6, 8 and 12."""
SEED = 0
"""Of questions and permutations."""
NAMES: dict[DesignKind, str] = {"insequence": "lookup@1", "prefix": "lookup-prefix@1"}
"""The named probes that are asked; `kvphase check lab:FILE --probe NAME` asks the same."""
PRIMARY: DesignKind = "prefix"
"""The design that decides."""
LOCAL_WINDOW = 16
"""Raw tokens of every member: targets that near are not asked."""


def _design(kind: DesignKind) -> NeedleDesign:
    """The design of a probe, without an audit: in this process greedy answers repeat themselves."""
    (fields,) = PROBES[NAMES[kind]]
    design = NeedleDesign(window=LOCAL_WINDOW, **fields)
    return replace(design, repeats=0, cold=0, alone=0)


@dataclass(frozen=True, slots=True)
class Measured:
    """Answers and verdicts of one model."""

    answers: dict[DesignKind, Answers]
    verdicts: dict[DesignKind, Verdict]

    @property
    def verdict(self) -> Verdict:
        """That of the design that decides."""
        return self.verdicts[PRIMARY]

    @property
    def loss(self) -> float:
        """Mean negative log-probability of the right answers in the design that decides, nats."""
        return float(-self.answers[PRIMARY].logprob.mean())

    def as_json(self) -> dict[str, Any]:
        """Figures for the results file; accuracies are fractions, gaps percentage points."""
        return {"loss": round(self.loss, 3)} | {
            kind: _figures(verdict) for kind, verdict in self.verdicts.items()
        }


def gap_of(verdict: Verdict) -> dict[str, Any]:
    """What a verdict says about the gap, rounded for the results file."""
    gap = verdict.gap
    return {
        "verdict": verdict.verdict,
        "period": verdict.period,
        "p_value": None if verdict.p_value is None else round(verdict.p_value, 4),
        "mean": round(verdict.mean, 4),
        "gap_pp": rounded(gap.crossfit_pp),
        "gap_ci95": None if gap.ci95 is None else [rounded(end) for end in gap.ci95],
        "raw_gap_pp": rounded(gap.raw_pp),
        "null_gap_pp": rounded(gap.null_pp),
        "mde_pp": rounded(verdict.mde_pp),
    }


def _figures(verdict: Verdict) -> dict[str, Any]:
    return gap_of(verdict) | {
        "n": verdict.n,
        "worst": None if verdict.worst is None else round(verdict.worst.accuracy, 4),
        "best": None if verdict.best is None else round(verdict.best.accuracy, 4),
        "by_residue": [round(at.accuracy, 3) for at in verdict.curve],
    }


def rounded(value: float | None) -> float | None:
    """Percentage points as the results file holds them."""
    return None if value is None else round(value, 1)


@cache
def _plan(kind: DesignKind) -> NeedlePlan:
    return plan(_design(kind), SEED)


def measured(model: Decoder) -> Measured:
    """Ask ``model`` all questions of both designs; it becomes fp64."""
    kinds: tuple[DesignKind, ...] = get_args(DesignKind)
    answers = {kind: answer(model, _plan(kind)) for kind in kinds}
    verdicts = {kind: measure(answers[kind], kind=kind, modulus=AXIS, seed=SEED) for kind in kinds}
    return Measured(answers, verdicts)
