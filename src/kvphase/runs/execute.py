"""Runs a flow against a runtime, keeping every answer: the only place where asks meet I/O."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.errors import TransientFault
from kvphase.runs.abreast import Pace
from kvphase.runs.budget import Budget, BudgetSpent, Meter
from kvphase.runs.patience import pause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runs.store import Store
    from kvphase.types import Answers, Ask, Flow, R, Reply, Runtime


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
    pace = Pace(runtime.limits.concurrency)
    try:
        asks = next(flow)
        while True:
            store.add(asks, stage)
            await _answer(asks, runtime, store, meter, pace, observe)
            asks = flow.send(store.answers(asks))
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        flow.close()


async def _answer(
    asks: Sequence[Ask],
    runtime: Runtime,
    store: Store,
    meter: Meter,
    pace: Pace,
    observe: Observer | None,
) -> None:
    known = _replayed(asks, store)
    for done, group in itertools.groupby(asks, lambda ask: ask.id in known):
        rest = list(group)
        while rest:
            batch = rest[:1] if done else pace.take(rest, meter)
            if done:
                events = [Event(ask, known[ask.id], 0, 0, 0, replayed=True) for ask in batch]
            else:
                events = await _ask(batch, runtime, store, meter, pace)
            rest = rest[len(batch) :]
            if observe is not None:
                for event in events:
                    observe(event)


async def _ask(
    batch: Sequence[Ask], runtime: Runtime, store: Store, meter: Meter, pace: Pace
) -> list[Event]:
    """Send a batch at once; every answer is stored as it arrives, also beside one that fails."""
    meter.check(batch[0])
    retried: list[Ask] = []
    started = time.perf_counter()

    async def one(ask: Ask) -> Event:
        reply = await complete(ask, runtime, retried.append, meter)
        correct = store.put(ask, reply)
        meter.add(ask, reply)
        counts = (reply.prefilled or 0, reply.cached or 0, reply.generated)
        return Event(ask, correct, *counts, replayed=False)

    if len(batch) == 1:
        events = [await one(batch[0])]
    else:
        found = await asyncio.gather(*map(one, batch), return_exceptions=True)
        events = [event for event in found if isinstance(event, Event)]
        for failure in found:
            if isinstance(failure, BaseException):
                raise failure
    pace.note(batch, time.perf_counter() - started, again=bool(retried))
    return events


def _replayed(asks: Sequence[Ask], store: Store) -> dict[str, int]:
    """Outcome of each of ``asks`` that an earlier sitting answered."""
    done = [ask for ask in asks if store.has(ask)]
    if not done:
        return {}
    answers: Answers = store.answers(done)
    return dict(zip((ask.id for ask in done), answers.correct.tolist(), strict=True))


async def complete(
    ask: Ask,
    runtime: Runtime,
    again: Callable[[Ask], None] | None = None,
    meter: Meter | None = None,
) -> Reply:
    """One reply; asked again after a passing fault, as `pause` allows.

    Args:
        ask: The question.
        runtime: Opened already.
        again: Told before the question is asked another time.
        meter: What is left of the budget, so that no wait outlasts it.

    Raises:
        RuntimeFault: it failed for good, or too often.
        BudgetSpent: the budget does not hold the wait that the server asks for.
    """
    tries = 0
    while True:
        try:
            return await runtime.complete(ask)
        except TransientFault as fault:
            tries += 1
            wait = pause(ask, fault, tries, meter)
        if again is not None:
            again(ask)
        await asyncio.sleep(wait)


__all__ = ["Budget", "BudgetSpent", "Event", "Meter", "Observer", "complete", "execute"]
