"""Before a question is asked again: what the server asks for, never longer than is sensible."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from fakes import FakeRuntime
from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runs.budget import Budget, BudgetSpent, Meter
from kvphase.runs.execute import complete
from kvphase.runs.patience import BUSY_WAITS, LONGEST, WAITS, pause
from kvphase.types import Arm, Ask

ASK = Ask("a", (1, 2), (3,), 0, " a", (" a",), Arm.SCREEN, 0, 0, 0, 0)


def fault(wait: float | None = None, *, untouched: bool = False) -> TransientFault:
    made = TransientFault("busy")
    made.wait, made.untouched = wait, untouched
    return made


def test_each_try_waits_longer_and_the_last_is_the_end() -> None:
    meter = Meter(Budget())
    assert tuple(pause(ASK, fault(), n, meter) for n in (1, 2, 3)) == WAITS
    assert tuple(pause(ASK, fault(untouched=True), n, None) for n in (1, 2, 3)) == BUSY_WAITS
    with pytest.raises(RuntimeFault, match=r"busy.*4 times"):
        pause(ASK, fault(), 4, meter)


def test_what_the_server_asks_for_comes_first() -> None:
    assert pause(ASK, fault(17.0, untouched=True), 1, Meter(Budget(seconds=60))) == 17.0


def test_no_wait_is_longer_than_the_budget_or_than_sensible() -> None:
    with pytest.raises(BudgetSpent, match="17 seconds"):
        pause(ASK, fault(17.0), 1, Meter(Budget(seconds=10)))
    with pytest.raises(RuntimeFault, match="3600 seconds") as caught:
        pause(ASK, fault(3600.0), 1, Meter(Budget()))
    assert not isinstance(caught.value, TransientFault)
    assert pause(ASK, fault(LONGEST), 1, None) == LONGEST


def test_a_server_that_asks_for_nothing_is_not_said_to() -> None:
    """It went away; that the next try would come too late is not what stopped the run."""
    for untouched in (True, False):
        with pytest.raises(RuntimeFault, match=r"^busy$") as caught:
            pause(ASK, fault(untouched=untouched), 3, Meter(Budget(seconds=2)))
        assert not isinstance(caught.value, (BudgetSpent, TransientFault))


def test_a_cold_ask_is_sent_again_only_if_nobody_worked_on_it() -> None:
    cold = replace(ASK, arm=Arm.COLD)
    assert pause(cold, fault(1.0, untouched=True), 1, None) == 1.0
    with pytest.raises(RuntimeFault, match="busy") as caught:
        pause(cold, fault(1.0), 1, None)
    assert not isinstance(caught.value, TransientFault)


def test_the_wait_is_kept_and_the_question_then_answered() -> None:
    def fail(_ask: Ask, _count: int) -> None:
        if not tried:
            tried.append(time.monotonic())
            raise fault(0.2, untouched=True)

    tried: list[float] = []
    reply = asyncio.run(complete(ASK, FakeRuntime(fail=fail), meter=Meter(Budget(seconds=9))))
    assert reply.text == " a"
    assert time.monotonic() - tried[0] >= 0.2
