"""Looking early: where a run stops, what its figures rest on, and that nothing else changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fakes import FakeRuntime, right_at, small_vocab
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import NeedlePlan, needle, plan_needle
from kvphase.runs.execute import execute
from kvphase.runs.store import Store
from kvphase.types import Arm, Ask, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def a_plan(contexts: int = 40, *, early: bool = True) -> NeedlePlan:
    design = NeedleDesign("insequence", 900, 24, contexts, window=16, repeats=20, cold=10, alone=10)
    return plan_needle(small_vocab(), FakeRuntime().limits, design, 1, early=early)


def run(
    path: Path, plan: NeedlePlan, rate: Callable[[Ask], float]
) -> tuple[Verdict, Verdict, list[Ask]]:
    """The verdict of the flow, the same measured again from the file, and what was asked."""
    with Store.create(path, {}) as store:
        verdict = asyncio.run(execute(needle(plan), FakeRuntime(right_at(rate)), store))
        return verdict, plan.measured(store.answers()), store.asks()


def strong(ask: Ask) -> float:
    return 0.85 if ask.target % 4 else 0.2


def test_a_clear_effect_ends_the_run_and_leaves_fresh_answers(tmp_path: Path) -> None:
    plan = a_plan()
    verdict, again, asks = run(tmp_path / "a.kvphase", plan, strong)
    assert plan.looks == (10, 20, 30, 40)
    assert plan.stop_after(10) == 18
    screen = [ask for ask in asks if ask.arm is Arm.SCREEN]
    assert {ask.context for ask in screen} == set(range(18))
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)
    assert [look.n for look in verdict.looks] == [240]
    assert verdict.fresh
    assert (verdict.n, verdict.contexts) == (8 * 24, 8)
    assert again == verdict
    # The audit is complete although most of the run was not asked.
    assert (verdict.audit.repeated, verdict.audit.alone, verdict.audit.cold) == (20, 10, 10)


def test_without_an_effect_everything_is_asked_and_counts(tmp_path: Path) -> None:
    verdict, again, asks = run(tmp_path / "a.kvphase", a_plan(), lambda _: 0.7)
    assert sum(ask.arm is Arm.SCREEN for ask in asks) == 960
    assert verdict.n == 960
    assert len(verdict.looks) == 4
    assert sum(look.weight for look in verdict.looks) == pytest.approx(1)
    assert not verdict.fresh
    assert verdict.verdict in ("not-detected", "inconclusive")
    assert again == verdict


def test_looking_once_is_as_before(tmp_path: Path) -> None:
    verdict, _, asks = run(tmp_path / "a.kvphase", a_plan(early=False), strong)
    assert sum(ask.arm is Arm.SCREEN for ask in asks) == 960
    assert verdict.looks == ()
    assert not verdict.fresh
    assert verdict.n == 960


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_what_is_all_right_or_all_wrong_is_not_asked_to_the_end(
    tmp_path: Path, rate: float
) -> None:
    verdict, again, asks = run(tmp_path / "a.kvphase", a_plan(), lambda _: rate)
    assert sum(ask.arm is Arm.SCREEN for ask in asks) == 240
    assert verdict.verdict == "saturated"
    assert again == verdict


@pytest.mark.parametrize("contexts", [1, 2, 3])
def test_few_contexts_are_looked_at_once(contexts: int) -> None:
    assert a_plan(contexts).looks == (contexts,)


def test_a_run_cut_between_looks_spends_what_weight_is_left(tmp_path: Path) -> None:
    plan = a_plan()
    with Store.create(tmp_path / "a.kvphase", {}) as store:
        asyncio.run(execute(needle(plan), FakeRuntime(right_at(lambda _: 0.7)), store))
        answers = store.answers()
    cut = plan.measured(answers.where(answers.context < 14))
    assert [look.n for look in cut.looks] == [240, 336]
    assert [look.weight for look in cut.looks] == pytest.approx([0.1, 0.9])
