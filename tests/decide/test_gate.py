"""The gate: passes on bounds only, never on what it cannot tell; its level over simulated runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from decide.worlds import WEAK, length, measured, run
from kvphase.decide.gate import Limits, gate
from kvphase.errors import UsageError
from kvphase.stats.simulate import Truth, by_context, constant, periodic

if TYPE_CHECKING:
    from kvphase.runs.evidence import Evidence

RUNS = 500
BELOW: dict[str, tuple[Truth, float, float]] = {
    "one weak phase": (periodic(0.95, [0, 0, -0.1, 0] * 2), 0.875, 10.0),
    "all alike": (constant(0.9), 0.9, 0.0),
    "contexts differ": (by_context, 0.65, 0.0),
}
"""Worlds with their true worst phase and gap; the last one as far as contexts go, on average."""


@pytest.mark.slow
def test_a_model_just_below_its_limits_passes_no_more_often_than_stated() -> None:
    # At a true rate of 5% more than 41 of 500 come with probability .001.
    bound = 41
    assert stats.binom.sf(bound, RUNS, 0.05) < 0.0015
    for name, (truth, worst, gap) in BELOW.items():
        passed = {"worst": 0, "gap": 0}
        for seed in range(RUNS):
            one = measured(truth, seed, questions=seed)
            passed["worst"] += gate(one, Limits(worst + 1e-4, None)).outcome == "pass"
            if gap:
                passed["gap"] += gate(one, Limits(None, gap - 0.01)).outcome == "pass"
        assert max(passed.values()) <= bound, (name, passed)


def test_good_bad_and_too_few() -> None:
    good = measured(constant(0.95), 1, contexts=64)
    found = gate(good, Limits(0.85, 10.0))
    assert found.outcome == "pass"
    only = found.lengths[0]
    assert only.bounds is not None
    assert only.lowest is not None
    assert 0.85 <= only.bounds.worst_low < only.lowest
    assert (only.n, only.contexts, only.fold) == (64 * 64, 64, 8)
    bad = gate(measured(periodic(0.8, WEAK), 1), Limits(0.9, None))
    assert bad.outcome == "fail"
    assert "some phase is at most" in bad.lengths[0].why
    wide = gate(measured(periodic(0.7, WEAK), 1, contexts=64), Limits(None, 5.0))
    assert wide.outcome == "fail"
    assert "points apart (5 allowed)" in wide.lengths[0].why
    # Seen above its limit, and still not known to be.
    few = gate(measured(constant(0.95), 1, contexts=8, records=24), Limits(0.9, None))
    assert few.outcome == "cannot-tell"
    assert few.lengths[0].settle is not None


def test_what_would_settle_it_does() -> None:
    few = gate(measured(constant(0.95), 3, contexts=8), Limits(0.9, None)).lengths[0]
    assert few.outcome == "cannot-tell"
    more = few.settle.values["n"]  # type: ignore[union-attr]
    assert more > few.n
    enough = measured(constant(0.95), 3, contexts=round(1.5 * more / 64))
    assert gate(enough, Limits(0.9, None)).outcome == "pass"
    close = gate(measured(constant(0.9), 1), Limits(0.93, None)).lengths[0]
    assert close.outcome != "pass"


def test_everything_right_in_a_single_context_is_not_told() -> None:
    one = measured(constant(1.0), 1, contexts=1)
    found = gate(one, Limits(0.9, None)).lengths[0]
    assert found.outcome == "cannot-tell"
    assert found.settle == "more contexts: there are too few to see how contexts differ"


def test_a_period_that_the_curve_averages_away_is_seen() -> None:
    # Modulo 8 a period of 3 is invisible: every residue is hit by all three phases.
    truth = periodic(0.85, [0.1, 0.1, -0.2])
    hidden = measured(truth, 1, contexts=64)
    assert gate(hidden, Limits(0.78, None)).outcome == "pass"
    named = measured(truth, 1, contexts=64, period=3, verdict="phase-sensitive")
    found = gate(named, Limits(0.78, None))
    assert (found.outcome, found.lengths[0].fold) == ("fail", 3)


def good() -> Evidence:
    return measured(constant(0.97), 1, contexts=64)


def test_missing_evidence_never_passes() -> None:
    limits = Limits(0.9, None)
    whole = good()
    assert gate(whole, limits).outcome == "pass"
    partial = replace(whole, lengths=(replace(whole.lengths[0], partial=True),))
    found = gate(partial, limits)
    assert found.outcome == "cannot-tell"
    assert "--resume" in str(found.lengths[0].settle)
    doubtful = replace(whole, verdict="unreliable", reason="answers change")
    assert "answers change" in gate(doubtful, limits).lengths[0].why
    empty = gate(replace(whole, lengths=(), headline="flip"), limits)
    assert (empty.outcome, empty.lengths[0].bounds) == ("cannot-tell", None)
    bad = measured(constant(0.5), 1)
    cut = replace(bad, lengths=(replace(bad.lengths[0], partial=True),))
    assert gate(cut, limits).outcome == "fail"


def test_every_length_must_pass_if_asked_for() -> None:
    whole = good()
    bad = measured(constant(0.5), 1).lengths[0]
    longer = replace(bad, rung="needle-8192", tokens=8192)
    both = replace(whole, lengths=(*whole.lengths, longer))
    assert gate(both, Limits(0.9, None)).outcome == "pass"
    found = gate(both, Limits(0.9, None), per_length=True)
    assert [one.outcome for one in found.lengths] == ["pass", "fail"]
    assert found.outcome == "fail"
    lacking = replace(whole, skipped=(("needle-8192", "no room"),))
    found = gate(lacking, Limits(0.9, None), per_length=True)
    assert (found.outcome, found.lengths[1].why) == (
        "cannot-tell",
        "needle-8192 was not measured: no room",
    )


@pytest.mark.parametrize(
    ("changed", "limits", "words"),
    [
        ({}, Limits(None, None), "say what the model must reach"),
        ({"frozen": False}, Limits(0.9, None), "needs a run made with --probe needle@1 or --like"),
        ({"frozen": None}, Limits(0.9, None), "give the run file"),
    ],
)
def test_what_cannot_be_gated_is_refused(
    changed: dict[str, object], limits: Limits, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        gate(replace(good(), **changed), limits)  # type: ignore[arg-type]


def test_bounds_of_an_empty_length_are_open() -> None:
    nothing = good().lengths[0].answers.where(np.zeros(64 * 64, bool))
    found = gate(run(length(nothing, None)), Limits(0.9, 5.0))
    assert found.outcome == "cannot-tell"
