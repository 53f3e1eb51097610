"""The published behavioural claims (Zhu et al., arXiv 2609.36322), each tested on trained models.

A claim is *confirmed* if every model it speaks of shows it, *not confirmed* if one shows otherwise,
and *not testable here* if no model shows otherwise but one cannot tell: it is saturated, or its run
would not have found an effect. What counts (docs/lab.md says what of it was settled when, and after
which models had been seen):

* a period is that of the verdict with prefix padding, the published protocol, at the usual level
  (`kvphase.stats.measure`); the in-sequence one stands beside it;
* "flat" is a finding in neither design, and the verdict ``not-detected`` in at least one: with
  prefix padding full attention has hardly room to fall;
* differences are those of `kvphase compare` (`kvphase.decide.pairs.mean_difference`): between the
  same questions, with a t interval over the contexts; "the mean agrees" is a difference whose 95%
  interval lies within `MEAN_MARGIN`, "the worst phase does not" one that lies beyond
  `WORST_MARGIN`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kvphase.decide.pairs import mean_difference
from kvphase.decide.phases import Tally, tally
from kvphase.lab.figures import AXIS, PRIMARY, SEED, gap_of, rounded
from kvphase.stats import measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from kvphase.decide.pairs import Estimate
    from kvphase.lab.figures import Measured
    from kvphase.types import Answers, Verdict

__all__ = ["Claim", "judge"]

MEAN_MARGIN, WORST_MARGIN = 5.0, 10.0
"""Percentage points."""
WINDOW = 8
"""Of the models of claims 5 and 6, W8/S8."""

Status = Literal["confirmed", "not confirmed", "not testable here"]
STRIDES = {
    "w4s4": 4,
    "w4s4-seed1": 4,
    "w4s4-seed2": 4,
    "w6s6": 6,
    "w8s8": 8,
    "w12s12": 12,
    "w8s4": 4,
    "w8s6": 6,
}
CONTROLS = {
    "full": (*STRIDES, "w4s4-uniform"),
    "full-kv4": ("w4s4-kv4", "w8s8-kv4"),
}
"""Full attention, and the compressed models that have its KV heads and positions."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and what the models say about it."""

    id: str
    """Its number in the paper's list, or the name of a design beside it."""
    claim: str
    status: Status
    figures: dict[str, Any]
    models: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The fields, JSON-ready."""
        return asdict(self) | {"models": list(self.models)}


def judge(models: Mapping[str, Measured]) -> list[Claim]:
    """Test every claim whose models are all among ``models``.

    Args:
        models: What was measured, by the name of the member.
    """
    made = [
        *_periods(models),
        _mean_hides_it(models),
        _boundary(models),
        *_beside(models),
    ]
    return sorted((claim for claim in made if claim is not None), key=lambda claim: claim.id)


def _status(seen: Iterable[bool | None]) -> Status:
    """Of what each model shows: the claim, the contrary, or (None) nothing."""
    shown = list(seen)
    if False in shown:
        return "not confirmed"
    return "not testable here" if None in shown else "confirmed"


def _period_is(model: Measured, stride: int) -> bool | None:
    """Whether the period is ``stride``; None if the run cannot tell."""
    verdict = model.verdict
    if verdict.verdict == "phase-sensitive":
        return verdict.period == stride
    return False if verdict.verdict in {"aperiodic", "not-detected"} else None


def _is_flat(model: Measured) -> bool | None:
    """Whether nothing was detected though it would have been; None if the run cannot tell."""
    verdicts = {verdict.verdict for verdict in model.verdicts.values()}
    if verdicts & {"phase-sensitive", "aperiodic"}:
        return False
    return True if "not-detected" in verdicts else None


def _periods(models: Mapping[str, Measured]) -> list[Claim | None]:
    """Claims 1 to 4: which periods there are, and where there is none."""
    return [
        _follows(
            models, "1", "accuracy is periodic with the stride, windows overlapping or not", STRIDES
        ),
        _flat(models),
        _without_rope(models),
        _follows(models, "4", "it persists with uniform averaging", {"w4s4-uniform": 4}),
    ]


def _follows(
    models: Mapping[str, Measured], number: str, claim: str, strides: Mapping[str, int]
) -> Claim | None:
    if not strides.keys() <= models.keys():
        return None
    figures = {
        name: {
            "stride": stride,
            "period": models[name].verdict.period,
            "verdict": models[name].verdict.verdict,
            "gap_pp": rounded(models[name].verdict.gap.crossfit_pp),
            "insequence_period": models[name].verdicts["insequence"].period,
        }
        for name, stride in strides.items()
    }
    seen = [_period_is(models[name], stride) for name, stride in strides.items()]
    return Claim(number, claim, _status(seen), figures, tuple(strides))


def _without_rope(models: Mapping[str, Measured]) -> Claim | None:
    """Claim 3, with full attention without RoPE beside it."""
    made = _follows(models, "3", "it persists without RoPE", {"w4s4-norope": 4})
    if made is not None and "full-norope" in models:
        verdicts = models["full-norope"].verdicts
        made.figures["full-norope"] = {kind: gap_of(v) for kind, v in verdicts.items()}
    return made


def _flat(models: Mapping[str, Measured]) -> Claim | None:
    """Claim 2, with the control's level: a model that sits at the floor is flat for nothing."""
    compressed = {name for group in CONTROLS.values() for name in group}
    if not CONTROLS.keys() | compressed <= models.keys():
        return None
    figures: dict[str, Any] = {}
    for name, group in CONTROLS.items():
        verdicts = models[name].verdicts
        figures[name] = {kind: gap_of(verdict) for kind, verdict in verdicts.items()}
        for kind, verdict in verdicts.items():
            level = {other: models[other].verdicts[kind].mean for other in group}
            best = max(group, key=level.__getitem__)
            figures[name][f"{kind}_highest_compressed"] = {best: round(level[best], 4)}
            figures[name][f"{kind}_mean_no_lower"] = verdict.mean >= level[best]
    status = _status(_is_flat(models[name]) for name in CONTROLS)
    return Claim("2", "full attention stays within noise", status, figures, tuple(CONTROLS))


def _mean_hides_it(models: Mapping[str, Measured]) -> Claim | None:
    """Claim 5: W8/S8 beside full attention with as many KV heads."""
    names = ("w8s8-kv4", "full-kv4")
    if not {*names} <= models.keys():
        return None
    compressed, full = (models[name].answers[PRIMARY] for name in names)
    mean = _difference(compressed, full, np.ones(len(full), np.bool_))
    worst = _worst_difference(compressed, full)
    figures = {
        "difference_of_means_pp": _interval(mean),
        "difference_at_the_worst_phase_pp": _interval(worst),
        "margins_pp": {"mean": MEAN_MARGIN, "worst": WORST_MARGIN},
        "means": {name: round(models[name].verdict.mean, 4) for name in names},
        "losses": {name: round(models[name].loss, 3) for name in names},
    }
    agrees = _within(mean, MEAN_MARGIN)
    lower = _beyond(worst, -WORST_MARGIN)
    return Claim("5", "the mean hides it", _status((agrees, lower)), figures, names)


def _within(seen: Estimate, margin: float) -> bool | None:
    """Whether an interval lies within plus or minus ``margin``; None if it straddles an end."""
    if -margin < seen.low and seen.high < margin:
        return True
    return False if seen.low > margin or seen.high < -margin else None


def _beyond(seen: Estimate, margin: float) -> bool | None:
    """Whether an interval lies below ``margin``; None if it straddles it."""
    if seen.high < margin:
        return True
    return False if seen.low > margin else None


def _boundary(models: Mapping[str, Measured]) -> Claim | None:
    """Claim 6: the boundary phase of W8/S8, and the phases within the window."""
    names = ("w8s8", "w8s8-kv4")
    if not {*names} <= models.keys():
        return None
    figures: dict[str, Any] = {}
    seen: list[bool | None] = []
    for name in names:
        answers = models[name].answers[PRIMARY]
        weak = _boundary_contrast(answers)
        within = answers.position % WINDOW != WINDOW - 1
        inside = measure(answers.where(within), kind=PRIMARY, modulus=AXIS, seed=SEED)
        figures[name] = {"boundary_minus_others_pp": _interval(weak), "inside": gap_of(inside)}
        seen += [_beyond(weak, 0.0), _differs(inside)]
    claim = "the boundary phase is weak, and the phases within a window differ too"
    return Claim("6", claim, _status(seen), figures, names)


def _differs(verdict: Verdict) -> bool | None:
    """Whether phases differ; None if the run cannot tell."""
    if verdict.verdict in {"phase-sensitive", "aperiodic"}:
        return True
    return False if verdict.verdict == "not-detected" else None


def _beside(models: Mapping[str, Measured]) -> list[Claim | None]:
    """Designs that the list of claims does not speak of, or only at full size."""
    return [
        _follows(
            models, "dsv4", "DeepSeek-V4's layers: the period is their stride of 4", {"dsv4": 4}
        ),
        _follows(
            models, "dsv41", "DeepSeek-V4.1's kernel: the period is its stride of 2", {"dsv41": 2}
        ),
        _latent(models),
    ]


def _latent(models: Mapping[str, Measured]) -> Claim | None:
    """MLA compresses every token by itself: there is no grid, so nothing to be periodic with."""
    if "mla" not in models:
        return None
    figures: dict[str, Any] = {
        kind: gap_of(verdict) for kind, verdict in models["mla"].verdicts.items()
    }
    status = _status([_is_flat(models["mla"])])
    return Claim(
        "mla", "a latent for each token (MLA) stays within noise", status, figures, ("mla",)
    )


def _difference(first: Answers, second: Answers, which: NDArray[np.bool_]) -> Estimate:
    """``first`` minus ``second`` over the same questions, those of ``which``."""
    if not np.array_equal(first.item, second.item):
        raise AssertionError("two models were asked different questions")
    one, two = (tally(run.where(which), run.context[which], WINDOW) for run in (first, second))
    return _between(one, two)


def _worst_difference(first: Answers, second: Answers) -> Estimate:
    """The same at the worst phase of ``first``, named on one half and measured on the other.

    The halves are the even and the odd contexts; both ways are put together.
    """
    phase, half = first.position % WINDOW, first.context % 2
    which = np.zeros(len(first), np.bool_)
    for side in (0, 1):
        here = half == side
        worst = int(tally(first.where(here), first.context[here], WINDOW).accuracy.argmin())
        which |= (half != side) & (phase == worst)
    return _difference(first, second, which)


def _boundary_contrast(answers: Answers) -> Estimate:
    """Accuracy at the boundary phase minus that at all others."""
    counts = tally(answers, answers.context, WINDOW)
    last, others = slice(WINDOW - 1, None), slice(WINDOW - 1)
    return _between(*(Tally(counts.n[:, part], counts.right[:, part]) for part in (last, others)))


def _between(first: Tally, second: Tally) -> Estimate:
    """The paired difference with its 95% interval; every design has more than two contexts."""
    found = mean_difference(first, second, 0.05, paired=True)
    if found is None:
        raise AssertionError("a difference needs two contexts")
    return found


def _interval(seen: Estimate) -> dict[str, Any]:
    """For the results file."""
    return {"mean": rounded(seen.pp), "ci95": [rounded(seen.low), rounded(seen.high)]}
