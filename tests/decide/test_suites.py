"""Suites of a user's own prompts: compared by task and residue, gated on their worst position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from decide.suites import World, suite
from decide.worlds import measured
from kvphase.decide.compare import ALPHA, compare
from kvphase.decide.everywhere import everywhere
from kvphase.decide.gate import Limits, gate
from kvphase.decide.views import views
from kvphase.errors import UsageError
from kvphase.runs.evidence import Suite
from kvphase.stats.simulate import constant

RUNS = 400
FLAT = (0.0,) * 8
WEAK = (0.05, 0.05, -0.15, 0.05)
STRONG = (0.25, 0.25, -0.75, 0.25)
WORLDS = {
    "all alike": World((0.9, 0.9), FLAT),
    "easy and hard tasks": World((0.6, 1.0), FLAT),
    "neighbours alike": World((0.6, 1.0), FLAT, sticky=0.8),
    "one weak residue": World((0.7, 0.95), WEAK),
    "strongly weak": World((0.75, 0.75), STRONG, sticky=0.3),
    "weak where each task stands": World((0.7, 0.95), WEAK, own=True),
    "strongly weak where each stands": World((0.75, 0.75), STRONG, own=True),
}


def found_at_once(world: str) -> dict[str, Any]:
    """A strong period is always found: that need not be worked out each time."""
    return {"shifts": 16, "period": 4} if world.startswith("strongly") else {}


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_a_suite_just_below_its_limit_passes_no_more_often_than_stated(world: str) -> None:
    # At a true rate of 5% more than 34 of 400 come with probability .001.
    bound = 34
    assert stats.binom.sf(bound, RUNS, 0.05) < 0.0015
    truth = WORLDS[world]
    gap = 0.0 if truth.own else truth.own_gap_pp
    passed = np.zeros(2, np.int64)
    failed = np.zeros(2, np.int64)
    for seed in range(RUNS):
        one = suite(truth, seed, questions=seed, **found_at_once(world))
        passed += (
            gate(one, Limits(truth.worst + 1e-4, None)).outcome == "pass",
            gap > 0 and gate(one, Limits(None, gap - 0.01)).outcome == "pass",
        )
        # What is inside the limits, each task's own worst residue too, must not fail either.
        failed += (
            gate(one, Limits(truth.own_worst, None)).outcome == "fail",
            gate(one, Limits(None, truth.own_gap_pp + 0.01)).outcome == "fail",
        )
    assert passed.max() <= bound, passed
    assert failed.max() <= bound, failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "world", ["weak where each task stands", "strongly weak where each stands"]
)
def test_what_no_common_residue_shows_does_not_pass_once_it_is_found(world: str) -> None:
    # Over the residues of the marked text all is level; the period was found task by task.
    truth = WORLDS[world]
    passed = 0
    for seed in range(RUNS):
        one = suite(truth, seed, questions=seed, shifts=16, period=4)
        passed += gate(one, Limits(truth.own_worst + 1e-4, None)).outcome == "pass"
        passed += gate(one, Limits(None, truth.own_gap_pp - 0.01)).outcome == "pass"
    assert passed <= 34, passed


def test_a_suite_of_hidden_weak_shifts_fails() -> None:
    one = suite(World((0.75, 0.75), STRONG, own=True), 1, tasks=60)
    assert one.lengths[0].period == 4
    assert max(view.bounds.worst_high for view in views(one.lengths[0], None)) > 0.75
    found = gate(one, Limits(0.5, None))
    assert (found.outcome, found.lengths[0].over, found.lengths[0].fold) == ("fail", "own", 4)
    wide = gate(one, Limits(None, 30.0))
    assert (wide.outcome, wide.lengths[0].over) == ("fail", "own")


def test_good_bad_and_too_few_tasks() -> None:
    good = gate(suite(World((1.0, 1.0), FLAT), 1, tasks=60), Limits(0.9, 10.0))
    assert good.outcome == "pass"
    only = good.lengths[0]
    assert only.bounds is not None
    # Sixty tasks that are always right: the exact limit of sixty answers, not of 480.
    assert only.bounds.worst_low == pytest.approx(0.05 ** (1 / 60), abs=1e-3)
    assert gate(suite(World((0.5, 0.6), FLAT), 1), Limits(0.95, None)).outcome == "fail"
    few = gate(suite(World((1.0, 1.0), FLAT), 1, tasks=8), Limits(0.9, None))
    assert few.outcome == "cannot-tell"
    assert few.lengths[0].settle is not None
    assert "tasks" in few.lengths[0].settle
    more = few.lengths[0].settle.values["n"]
    assert gate(suite(World((1.0, 1.0), FLAT), 1, tasks=more), Limits(0.9, None)).outcome == "pass"
    alone = gate(suite(World((1.0, 1.0), FLAT), 1, tasks=1), Limits(0.5, None))
    assert alone.outcome == "cannot-tell"
    assert alone.lengths[0].settle == "more tasks: there are too few to see how tasks differ"


def test_unfinished_and_unreliable_suites_never_pass() -> None:
    one = suite(World((1.0, 1.0), FLAT), 1, tasks=60)
    partial = replace(one, lengths=(replace(one.lengths[0], partial=True),))
    found = gate(partial, Limits(0.9, None))
    assert found.outcome == "cannot-tell"
    assert "kvphase shift" in str(found.lengths[0].settle)
    doubtful = replace(one, verdict="unreliable", reason="it follows the question")
    assert "follows the question" in gate(doubtful, Limits(0.9, None)).lengths[0].why


@pytest.mark.slow
def test_equal_models_on_one_suite_differ_no_more_often_than_stated() -> None:
    # At a true rate of 1% more than 13 alarms in 490 pairs come with probability .0006.
    bound, worlds = 13, sorted(WORLDS)
    assert stats.binom.sf(bound, 490, ALPHA) < 0.001
    alarms = []
    for seed in range(490):
        world = worlds[seed % len(worlds)]
        truth, at_once = WORLDS[world], found_at_once(world)
        one = suite(truth, 2 * seed, questions=seed, **at_once)
        two = suite(truth, 2 * seed + 1, questions=seed, name="b.kvphase", **at_once)
        pair = compare([one, two], seed=seed).tables[0].pairs[0]
        assert pair.paired
        if pair.finding != "none":
            alarms.append((world, seed, pair.finding))
    assert len(alarms) <= bound, alarms


def test_what_differs_is_found() -> None:
    flat, weak = (
        suite(World((0.75, 0.75), profile), seed, tasks=60, shifts=16, name=name)
        for seed, (name, profile) in enumerate({"flat": FLAT, "weak": STRONG}.items())
    )
    table = compare([flat, weak]).tables[0]
    pair = table.pairs[0]
    assert pair.finding == "pattern"
    assert pair.pattern.period in (4, 8)
    assert [standing.run for standing in table.standings] == [0, 1]
    sure, low = (
        suite(World((ease, ease), FLAT), 3, tasks=60, name=name)
        for name, ease in {"sure": 1.0, "low": 0.7}.items()
    )
    pair = compare([sure, low]).tables[0].pairs[0]
    assert pair.finding == "level"
    assert pair.steady is not None
    assert (pair.steady.tasks, pair.steady.first) == (60, 60)
    assert pair.steady_holm is not None
    assert pair.steady_holm < 0.001


def test_weak_shifts_of_each_tasks_own_show_in_the_tasks_that_are_always_right() -> None:
    # The same level and no common residue: half of all tasks certain, or every one off at times.
    certain = suite(World((0.0, 1.0), FLAT, sticky=1.0), 1, tasks=80, shifts=8)
    flips = suite(World((0.5, 0.5), (0.5, 0.5, -0.5, -0.5), own=True), 1, tasks=80, shifts=8)
    pair = compare([certain, replace(flips, name="b")]).tables[0].pairs[0]
    assert pair.finding == "steady"


def test_pairs_are_of_one_task_at_one_residue() -> None:
    one = suite(World((0.6, 1.0), FLAT), 1, shifts=16)
    two = suite(World((0.6, 1.0), FLAT), 2, shifts=8, name="b")
    pair = compare([one, two]).tables[0].pairs[0]
    assert (pair.paired, pair.n, pair.left) == (True, 24 * 8, 24 * 8)
    # Another tokenizer: all stands three tokens further on, the residues still pair.
    length = two.lengths[0]
    moved = replace(length.answers, position=length.answers.position + 3)
    names = [f"{item}:{at}:0" for item, at in zip(moved.item, moved.position % 8, strict=True)]
    other = replace(length, answers=moved, level=moved, content=np.array(names))
    pair = compare([one, replace(two, lengths=(other,))]).tables[0].pairs[0]
    assert (pair.paired, pair.n) == (True, 24 * 8)


def test_the_sign_test_is_exact() -> None:
    one = suite(World((1.0, 1.0), FLAT), 1, tasks=10, shifts=8).lengths[0].answers
    two = replace(one, correct=np.where((one.item < 6) & (one.pad == 9), 0, 1).astype(np.int8))
    found = everywhere(one, two)
    assert (found.tasks, found.first, found.second) == (10, 10, 4)
    assert found.p_value == pytest.approx(2 * 0.5**6)
    assert everywhere(one, one).p_value == 1.0


def test_other_suites_and_other_commands_are_refused_by_name() -> None:
    one = suite(World((0.6, 1.0), FLAT), 1)
    other = replace(one, name="b.kvphase", suite=Suite("e1", 24, 0, 0, 8))
    with pytest.raises(UsageError, match=r"digest\) differs: f0 in a\.kvphase, e1 in b"):
        compare([one, other])
    with pytest.raises(UsageError, match="is a run of kvphase shift and n"):
        compare([measured(constant(0.8), 1, name="n.kvphase"), one])
