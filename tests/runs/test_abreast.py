"""Questions under way at once: more answers a second, the same answers, no budget exceeded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from fakes import FakeRuntime, right_at, small_vocab
from kvphase.errors import RuntimeFault, TransientFault
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import NeedlePlan, needle, plan_needle
from kvphase.runs import abreast, patience
from kvphase.runs.abreast import Pace
from kvphase.runs.budget import Budget, BudgetSpent, Meter
from kvphase.runs.execute import Event, execute
from kvphase.runs.store import Store
from kvphase.types import Arm, Ask, Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RATE = right_at(lambda ask: 0.9 if ask.target % 4 else 0.2)


def a_plan() -> NeedlePlan:
    design = NeedleDesign("insequence", 900, 24, 6, window=16, repeats=20, cold=10, alone=6)
    return plan_needle(small_vocab(), FakeRuntime().limits, design, 1)


@dataclass
class Batching(FakeRuntime):
    """Takes a while; sees how many questions are under way."""

    at_once: list[int] = field(default_factory=list)
    under_way: list[Ask] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = replace(self.limits, concurrency=8)

    async def complete(self, ask: Ask) -> Reply:
        """By rule, after a while; nothing may be beside it that disturbs it."""
        others = list(self.under_way)
        assert not (others and {ask.arm, *(o.arm for o in others)} & {Arm.ALONE, Arm.COLD})
        assert all(other.prefix == ask.prefix for other in others)
        assert not others or self._prefix == ask.prefix, "sent beside the prefill of its prefix"
        self.under_way.append(ask)
        try:
            await asyncio.sleep(0.002)
            self.at_once.append(len(self.under_way))
            return await super().complete(ask)
        finally:
            self.under_way.remove(ask)


def run(path: Path, runtime: FakeRuntime, budget: Budget | None = None) -> list[Event]:
    events: list[Event] = []
    opened = Store.resume(path) if path.exists() else Store.create(path, {"seed": 1})
    with opened as store:
        asyncio.run(execute(needle(a_plan()), runtime, store, budget, events.append))
    return events


def rows(path: Path) -> list[tuple[object, ...]]:
    with Store.read(path) as store:
        return store._rows(
            "SELECT asks.ordinal, asks.id, text, correct FROM asks JOIN answers"
            " ON ask_id = asks.id ORDER BY asks.ordinal"
        )


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widen whatever the clock of a busy machine says."""
    monkeypatch.setattr(abreast, "GAIN", 0.0)


def widths(seconds: Callable[[int], float], most: int = 16, batches: int = 40) -> list[int]:
    """Widths of so many batches that take ``seconds(width)`` each."""
    pace, meter = Pace(most), Meter(Budget())
    ask = Ask("a", (1, 2), (3,), 1, " x", (" x",), Arm.SCREEN, 0, 0, 0, 0)
    pace.note(pace.take([ask], meter), 9.9, again=False)  # the prefill
    taken = []
    for _ in range(batches):
        batch = pace.take([ask] * most, meter)
        taken.append(len(batch))
        pace.note(batch, seconds(len(batch)), again=False)
    return taken


@pytest.mark.parametrize(
    ("seconds", "last"),
    [
        (lambda _: 0.1, 16),  # all at once cost one
        (lambda width: 0.1 * width, 1),  # each costs the same
        (lambda width: 0.1 * max(1, width / 4), 4),  # four places
        (lambda width: 0.09 + 0.01 * width, 16),
        (lambda width: 0.02 * width**1.5, 1),
    ],
)
def test_width_grows_as_long_as_it_pays(seconds: Callable[[int], float], last: int) -> None:
    taken = widths(seconds)
    assert set(taken[-10:]) == {last}
    assert taken[:3] == [1, 1, 1]
    assert max(taken) <= 2 * last


def test_an_endpoint_that_takes_one_at_a_time_gets_one_at_a_time(tmp_path: Path) -> None:
    runtime = Batching(RATE)
    runtime.limits = replace(runtime.limits, concurrency=1)
    run(tmp_path / "a.kvphase", runtime)
    assert set(runtime.at_once) == {1}


@pytest.mark.usefixtures("wide")
def test_the_answers_are_the_same(tmp_path: Path) -> None:
    alone, beside = tmp_path / "alone.kvphase", tmp_path / "beside.kvphase"
    events = run(alone, FakeRuntime(RATE))
    batching = Batching(RATE)
    found = run(beside, batching)
    assert max(batching.at_once) == 8
    assert rows(beside) == rows(alone)
    assert [event.ask.id for event in found] == [event.ask.id for event in events]


@pytest.mark.usefixtures("wide")
def test_a_refusal_halves_the_width_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "WAITS", (0.0, 0.0, 0.0))
    crowded = Batching(RATE)
    refused: list[int] = []

    def refuse(_ask: Ask, count: int) -> None:
        if len(crowded.under_way) > 4:
            refused.append(count)
            raise TransientFault("too many requests")

    crowded.fail = refuse
    run(tmp_path / "a.kvphase", crowded)
    assert len(rows(tmp_path / "a.kvphase")) == a_plan().questions
    assert refused
    assert refused[-1] < refused[0] + 8, "it went on sending too many"


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("questions", [1, 7, 50, 101])
def test_a_budget_of_questions_holds_to_the_question(tmp_path: Path, questions: int) -> None:
    runtime = Batching(RATE)
    with pytest.raises(BudgetSpent):
        run(tmp_path / "a.kvphase", runtime, Budget(questions=questions))
    assert len(runtime.asked) == len(rows(tmp_path / "a.kvphase")) == questions


@pytest.mark.usefixtures("wide")
def test_a_budget_of_tokens_is_exceeded_by_one_question_at_most(tmp_path: Path) -> None:
    runtime = Batching(RATE)
    with Store.create(tmp_path / "a.kvphase", {}) as store:
        meter = Meter(Budget(tokens=4000))
        with pytest.raises(BudgetSpent):
            asyncio.run(execute(needle(a_plan()), runtime, store, meter))
    assert max(runtime.at_once) > 1
    assert 4000 <= meter.tokens < 4000 + 1000  # a prefill may be the last


@pytest.mark.usefixtures("wide")
def test_what_was_answered_beside_a_failure_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"
    failing = Batching(RATE)

    def fail(_ask: Ask, count: int) -> None:
        if count > 40 and len(failing.under_way) == 7:
            failing.fail = lambda _a, _c: None
            raise RuntimeFault("the server broke off")

    failing.fail = fail
    with pytest.raises(RuntimeFault, match="broke off"):
        run(path, failing)
    assert len(rows(path)) == len(failing.asked) > 46
    again = Batching(RATE)
    run(path, again)
    assert not set(again.asked) & set(failing.asked)
    whole = tmp_path / "whole.kvphase"
    run(whole, FakeRuntime(RATE))
    assert rows(path) == rows(whole)
