"""Which rung a run's verdict rests on, and what a confirmation makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kvphase.catalogue import message
from kvphase.runs.stages import Result, Skipped, Stage, headline
from kvphase.stats.confirmed import Confirmation, ConfirmStatus
from kvphase.stats.measure import measure, relevel
from kvphase.stats.simulate import answer, constant, insequence, periodic

if TYPE_CHECKING:
    from kvphase.types import Verdict

RNG = np.random.default_rng(3)
FOUND = measure(answer(insequence(RNG, records=960), periodic(0.6, [0.1, 0.1, 0.1, -0.3]), RNG))
CLEAN = measure(answer(insequence(RNG, records=9600), constant(0.7), RNG))
FEW = measure(answer(insequence(RNG, records=96), constant(0.7), RNG))


def a_result(name: str, verdict: Verdict | None, status: ConfirmStatus | None = None) -> Result:
    kind = "confirm" if status else "flip" if name == "flip" else "needle"
    stage = Stage(name, kind, 0, 0, None, 8, 0, {"kind": "insequence"})  # type: ignore[arg-type]
    found = None if status is None else Confirmation(status, "because", 4, (), (), None, 9, 2)
    return Result(stage, verdict, found, {})


def test_the_simulated_verdicts_are_what_the_tests_need() -> None:
    assert (FOUND.verdict, FOUND.period) == ("phase-sensitive", 4)
    assert CLEAN.verdict == "not-detected"
    assert FEW.verdict == "inconclusive"


def test_the_shortest_rung_that_found_phase_comes_first() -> None:
    rungs = [a_result("needle-2048", CLEAN), a_result("needle-8192", FOUND)]
    head = headline([a_result("flip", FEW), *rungs, a_result("needle-32768", FOUND)])
    assert head is not None
    assert head[0].stage.name == "needle-8192"


def test_else_the_longest_that_ruled_it_out_else_the_one_with_most_answers() -> None:
    head = headline([a_result("needle-2048", CLEAN), a_result("needle-8192", CLEAN)])
    assert head is not None
    assert head[0].stage.name == "needle-8192"
    fewer = replace(FEW, n=10)
    head = headline([a_result("needle-2048", FEW), a_result("needle-8192", fewer)])
    assert head is not None
    assert head[0].stage.name == "needle-2048"
    head = headline([a_result("flip", FEW)])
    assert head is not None
    assert head[0].stage.name == "flip"
    assert headline([a_result("flip", None)]) is None


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ("follows-target", "phase-sensitive"),
        ("mixed", "phase-sensitive"),
        ("inconclusive", "phase-sensitive"),
        ("not-confirmed", "unreliable"),
        ("follows-question", "unreliable"),
        ("follows-distance", "unreliable"),
    ],
)
def test_only_what_follows_the_target_is_phase(status: ConfirmStatus, name: str) -> None:
    head = headline([a_result("needle-2048", FOUND), a_result("confirm-2048", None, status)])
    assert head is not None
    assert head[1].verdict == name
    if name == "unreliable":
        assert head[1].period is None
        assert "because" in head[1].reason


@pytest.mark.parametrize(
    ("status", "name"),
    [("follows-question", "unreliable"), ("not-confirmed", "not-detected")],
)
def test_a_clean_screen_is_clean_unless_something_else_was_found(
    status: ConfirmStatus, name: str
) -> None:
    head = headline([a_result("needle-2048", CLEAN), a_result("confirm-2048", None, status)])
    assert head is not None
    assert head[1].verdict == name


def test_a_reason_keeps_its_key_in_the_run_file() -> None:
    why = message("run.no-room", seconds=12.0, tokens=900)
    for skipped in (Skipped("needle-8192", why), Skipped("needle-8192", "plain words")):
        assert Skipped.of_json(skipped.as_json()) == skipped
    assert getattr(Skipped.of_json(Skipped("x", why).as_json()).why, "key", "") == "run.no-room"


def test_level_and_gap_can_come_from_other_answers() -> None:
    rng = np.random.default_rng(5)
    truth = periodic(0.6, [0.1, 0.1, 0.1, -0.3])
    later = answer(insequence(rng, records=1920), truth, rng)
    moved = relevel(FOUND, later)
    assert (moved.verdict, moved.period, moved.p_value) == ("phase-sensitive", 4, FOUND.p_value)
    assert moved.n == len(later)
    assert moved.fresh
    assert moved.mean == pytest.approx(float(later.correct.mean()))
    assert moved.gap.crossfit_pp is not None
    # 480 answers at each of two residues: a standard error of about 3 points.
    assert abs(moved.gap.crossfit_pp - 40) < 12
