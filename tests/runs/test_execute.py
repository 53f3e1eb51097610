from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fakes import FakeRuntime, right_at, small_vocab
from kvphase.errors import RuntimeFault, TransientFault
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import NeedlePlan, needle, plan_needle
from kvphase.runs import patience
from kvphase.runs.budget import Budget, BudgetSpent
from kvphase.runs.execute import Event, execute
from kvphase.runs.store import Store
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "WAITS", (0.0, 0.0, 0.0))


def a_plan() -> NeedlePlan:
    design = NeedleDesign("insequence", 900, 24, 6, window=16, repeats=20, cold=10, alone=0)
    return plan_needle(small_vocab(), FakeRuntime().limits, design, 1)


RATE = right_at(lambda ask: 0.9 if ask.target % 4 else 0.2)


def run(
    path: Path, runtime: FakeRuntime, *, resume: bool = False, budget: Budget | None = None
) -> list[Event]:
    events: list[Event] = []
    opened = Store.resume(path) if resume else Store.create(path, {"seed": 1})
    with opened as store:
        asyncio.run(execute(needle(a_plan()), runtime, store, budget, events.append))
    return events


def rows(path: Path) -> list[tuple[object, ...]]:
    with Store.read(path) as store:
        return store._rows(
            "SELECT asks.ordinal, asks.id, text, correct FROM asks JOIN answers"
            " ON ask_id = asks.id ORDER BY asks.ordinal"
        )


def test_everything_is_asked_once_and_the_verdict_comes_back(tmp_path: Path) -> None:
    runtime = FakeRuntime(RATE)
    with Store.create(tmp_path / "a.kvphase", {}) as store:
        verdict = asyncio.run(execute(needle(a_plan()), runtime, store))
    assert len(runtime.asked) == len(set(runtime.asked)) == a_plan().questions == 174
    assert verdict.n == 144
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)
    assert (verdict.audit.repeated, verdict.audit.cold) == (20, 10)


def test_a_stopped_run_resumes_to_the_same_end_and_asks_nothing_twice(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.kvphase", tmp_path / "parts.kvphase"
    run(whole, FakeRuntime(RATE))
    asked: list[str] = []
    for sitting in range(30):
        runtime = FakeRuntime(RATE)
        try:
            run(parts, runtime, resume=sitting > 0, budget=Budget(questions=7))
        except BudgetSpent:
            assert len(runtime.asked) == 7
        asked += runtime.asked
    assert len(asked) == len(set(asked)) == 174
    assert rows(parts) == rows(whole)


def test_answers_are_kept_before_the_next_question_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"

    def fail(_: Ask, count: int) -> None:
        if count == 50:
            with Store.read(path) as reader:
                assert len(reader.answers()) == 50
            raise RuntimeFault("the server went away")

    with pytest.raises(RuntimeFault, match="went away"):
        run(path, FakeRuntime(RATE, fail=fail))
    assert len(rows(path)) == 50


def test_a_passing_fault_is_asked_again_a_bounded_number_of_times(tmp_path: Path) -> None:
    tries: dict[str, int] = {}

    def flaky(ask: Ask, _: int) -> None:
        tries[ask.id] = tries.get(ask.id, 0) + 1
        if tries[ask.id] <= 3 and ask.item % 5 == 0 and ask.arm is not Arm.COLD:
            raise TransientFault("reset")

    run(tmp_path / "a.kvphase", FakeRuntime(RATE, fail=flaky))
    assert max(tries.values()) == 4
    assert len(rows(tmp_path / "a.kvphase")) == 174

    def broken(_ask: Ask, count: int) -> None:
        if count == 9:
            raise TransientFault("reset")

    with pytest.raises(RuntimeFault, match=r"reset \(asked 4 times\)"):
        run(tmp_path / "b.kvphase", FakeRuntime(RATE, fail=broken))
    assert len(rows(tmp_path / "b.kvphase")) == 9


def test_a_failed_prefill_is_never_repeated_blindly(tmp_path: Path) -> None:
    tries = 0

    def fail(ask: Ask, _: int) -> None:
        nonlocal tries
        if ask.arm is Arm.COLD:
            tries += 1
            raise TransientFault("reset")

    with pytest.raises(RuntimeFault, match="reset"):
        run(tmp_path / "a.kvphase", FakeRuntime(RATE, fail=fail))
    assert tries == 1


@pytest.mark.parametrize(
    ("budget", "asked"),
    [(Budget(questions=30), 30), (Budget(tokens=2000), 2), (Budget(seconds=0.0), 0)],
)
def test_a_budget_is_exceeded_by_one_ask_at_most(
    tmp_path: Path, budget: Budget, asked: int
) -> None:
    runtime = FakeRuntime(RATE)
    with pytest.raises(BudgetSpent, match="is used up"):
        run(tmp_path / "a.kvphase", runtime, budget=budget)
    if budget.tokens:
        # The first ask prefills 900 tokens, each further one two and an answer.
        assert 300 > len(runtime.asked) >= asked
    else:
        assert len(runtime.asked) == asked


def test_the_observer_sees_every_answer_in_order_replayed_ones_marked(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"
    with pytest.raises(BudgetSpent):
        run(path, FakeRuntime(RATE), budget=Budget(questions=40))
    events = run(path, FakeRuntime(RATE), resume=True)
    assert [e.replayed for e in events] == [True] * 40 + [False] * 134
    assert [(e.ask.id, e.correct) for e in events] == [(r[1], r[3]) for r in rows(path)]
