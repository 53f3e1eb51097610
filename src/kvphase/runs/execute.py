"""Runs a flow against a runtime, keeping every answer: the only place where asks meet I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runs.budget import Budget, BudgetSpent, Meter
from kvphase.types import Arm, R

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runs.store import Store
    from kvphase.types import Answers, Ask, Flow, Reply, Runtime

_WAITS = (0.5, 1.0, 2.0)
"""Seconds before a question is asked again; after the last one the run stops."""


@dataclass(frozen=True, slots=True)
class Event:
    """One answer, as it arrived: for progress displays."""

    ask: Ask
    correct: int
    """1 right, 0 wrong, -1 unfinished."""
    prefilled: int
    cached: int
    generated: int
    replayed: bool
    """The answer came from the run file of an earlier sitting."""


Observer = Callable[[Event], None]


async def execute(
    flow: Flow[R],
    runtime: Runtime,
    store: Store,
    budget: Budget | Meter | None = None,
    observe: Observer | None = None,
    *,
    stage: str = "needle",
) -> R:
    """Drive ``flow`` to its end: ask what the store does not hold yet, send back the answers.

    Replaying a flow against a store that holds some of its answers asks only the rest, so a
    killed run, resumed, ends like an undisturbed one.

    Args:
        flow: A probe or a cause; yields batches of asks.
        runtime: Opened already.
        store: Receives every ask before it is sent and every answer as it arrives.
        budget: Bounds for this sitting, or what it has used so far; none if not given.
        observe: Called after each answer, in ask order.
        stage: Which part of the run the asks belong to.

    Returns:
        What the flow returns.

    Raises:
        BudgetSpent: nothing is left; all answers so far are in the store.
        RuntimeFault: the runtime is unusable; all answers so far are in the store.
    """
    meter = budget if isinstance(budget, Meter) else Meter(budget or Budget())
    try:
        asks = next(flow)
        while True:
            store.add(asks, stage)
            await _answer(asks, runtime, store, meter, observe)
            asks = flow.send(store.answers(asks))
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        flow.close()


async def _answer(
    asks: Sequence[Ask], runtime: Runtime, store: Store, meter: Meter, observe: Observer | None
) -> None:
    known = _replayed(asks, store)
    for ask in asks:
        if ask.id in known:
            event = Event(ask, known[ask.id], 0, 0, 0, replayed=True)
        else:
            meter.check(ask)
            reply = await complete(ask, runtime)
            correct = store.put(ask, reply)
            meter.add(ask, reply)
            event = Event(
                ask,
                correct,
                reply.prefilled or 0,
                reply.cached or 0,
                reply.generated,
                replayed=False,
            )
        if observe is not None:
            observe(event)


def _replayed(asks: Sequence[Ask], store: Store) -> dict[str, int]:
    """Outcome of each of ``asks`` that an earlier sitting answered."""
    done = [ask for ask in asks if store.has(ask)]
    if not done:
        return {}
    answers: Answers = store.answers(done)
    return dict(zip((ask.id for ask in done), answers.correct.tolist(), strict=True))


async def complete(ask: Ask, runtime: Runtime) -> Reply:
    """One reply; questions on a cached prefix are asked again after a passing fault.

    A cold ask is a prefill of its own and is never repeated blindly.
    """
    waits = () if ask.arm is Arm.COLD else _WAITS
    for wait in waits:
        try:
            return await runtime.complete(ask)
        except TransientFault:
            await asyncio.sleep(wait)
    try:
        return await runtime.complete(ask)
    except TransientFault as fault:
        tries = len(waits) + 1
        raise RuntimeFault(f"{fault} (asked {tries} times)" if waits else str(fault)) from fault


__all__ = ["Budget", "BudgetSpent", "Event", "Meter", "Observer", "complete", "execute"]
