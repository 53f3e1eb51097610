"""What the parts of a shift run take, and whether they fit what is left of a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.runs.budget import BudgetSpent
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvphase.catalogue import Message
    from kvphase.probes.shift import ShiftPlan
    from kvphase.runs.budget import Budget
    from kvphase.types import Answers, Ask, Flow

ROOM = 1.2
"""Times what it is thought to take that a budget is advised to hold."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast an endpoint answers."""

    rate: float
    """Prompt tokens a second."""
    each: float
    """Seconds of a request besides its prompt: the answer's tokens and the way there and back."""
    reuse: bool = True
    """Whether a prefix that two requests share was read only once."""


@dataclass(frozen=True, slots=True)
class Price:
    """What some requests take."""

    requests: int
    evaluated: int
    """Prompt tokens that are read."""
    cached: int
    """Prompt tokens from the cache."""
    generated: int

    @property
    def tokens(self) -> int:
        """As a budget counts them."""
        return self.evaluated + self.generated

    def seconds(self, speed: Speed) -> float:
        """At this speed."""
        return self.evaluated / speed.rate + self.requests * speed.each

    def dollars(self, budget: Budget) -> float:
        """0 without prices."""
        if budget.prices is None:
            return 0.0
        return budget.prices.of(self.evaluated, self.cached, self.generated)


def price_of(asks: Sequence[Ask], speed: Speed | None = None) -> Price:
    """Of requests one after the other; a prefix that the last one had is in the cache.

    Args:
        asks: In the order asked.
        speed: Of the endpoint, if it is known: whether it keeps prefixes at all.
    """
    reuse = speed is None or speed.reuse
    evaluated, cached, generated, last = 0, 0, 0, None
    for ask in asks:
        again = reuse and ask.prefix == last and ask.arm is not Arm.COLD
        kept = len(ask.prefix) if again else 0
        cached += kept
        evaluated += len(ask.prompt) - kept
        generated += ask.generate
        last = ask.prefix
    return Price(len(asks), evaluated, cached, generated)


def parts_of(plan: ShiftPlan) -> list[tuple[str, list[Ask]]]:
    """The parts of a run in order: ``plain``, ``first``, ``more``, ``tail``; empty ones left out.

    The first two are asked in any case.
    """
    parts = [("plain", plan.plain()), ("first", [*plan.screen(0, plan.first), *plan.cold()])]
    if not plan.full:
        parts.append(("more", plan.screen(plan.first, 2 * plan.first)))
    parts.append(("tail", plan.tail()))
    return [(name, asks) for name, asks in parts if asks]


def certain(plan: ShiftPlan) -> list[Ask]:
    """What is asked in any case."""
    asks = [*plan.plain(), *plan.screen(0, plan.first), *plan.cold()]
    return [*asks, *plan.tail()] if plan.full else asks


def timing(plan: ShiftPlan) -> list[Ask]:
    """What is asked first to see how fast the endpoint is; all of it is asked anyway."""
    screen = plan.screen(0, plan.first)
    return [*plan.plain()[:1], *(screen[:2] if screen[0].prefix else [])]


def speed_of(reads: Sequence[tuple[int, float]], prefix: int) -> Speed:
    """From what the questions of `timing` took.

    Where all of them read as much, nothing tells reading from answering, and all counts as reading.

    Args:
        reads: Prompt tokens that were read, and seconds, of each; at least one. Before the last of
            several its prefix was read already.
        prefix: Tokens of that prefix.
    """
    tokens, seconds = (sum(column) for column in zip(*reads, strict=True))
    total = Speed(max(tokens, 1) / max(seconds, 1e-4), 0.0)
    if len(reads) < 2:
        return total
    (most, slow), (less, quick) = max(reads[:-1]), reads[-1]
    if most - less < prefix / 2:
        return replace(total, reuse=False)
    if slow <= quick:
        return total
    rate = (most - less) / (slow - quick)
    return Speed(rate, max(0.0, quick - less / rate))


def lacking(price: Price, left: Budget, speed: Speed | None) -> bool:
    """Whether what is left of a budget does not hold this; time only counts at a known speed."""
    needs = (
        (left.questions, price.requests),
        (left.tokens, price.tokens),
        (left.seconds, price.seconds(speed) if speed is not None else 0.0),
        (left.dollars, price.dollars(left)),
    )
    return any(bound is not None and need > bound for bound, need in needs)


def advice(price: Price, left: Budget, speed: Speed | None) -> str:
    """The ``--budget`` options that would hold this, of the kinds that were given."""
    options = []
    if left.questions is not None:
        options.append(f"{price.requests}q")
    if left.tokens is not None:
        options.append(f"{math.ceil(ROOM * price.tokens / 1000)}ktok")
    if left.dollars is not None:
        options.append(f"${_dollars(ROOM * price.dollars(left))}")
    if left.seconds is not None and speed is not None:
        options.append(f"{max(1, math.ceil(ROOM * price.seconds(speed) / 60))}m")
    return " ".join(f"--budget '{one}'" if "$" in one else f"--budget {one}" for one in options)


def _dollars(value: float) -> str:
    """To two digits, rounded up."""
    unit = 10.0 ** (math.floor(math.log10(max(value, 1e-6))) - 1)
    return f"{math.ceil(value / unit) * unit:.6f}".rstrip("0").rstrip(".")


def must_fit(plan: ShiftPlan, done: Sequence[Ask], left: Budget, speed: Speed | None) -> None:
    """Refuse a budget that does not hold what is asked in any case.

    Args:
        plan: Everything.
        done: What was answered already.
        left: Of the budget.
        speed: Of the endpoint; None before anything was timed.

    Raises:
        UsageError: it says what is needed, what would do, and how many of a suite's tasks fit.
    """
    over = {ask.id for ask in done}
    rest = [ask for ask in certain(plan) if ask.id not in over]
    price = price_of(rest, speed)
    if not lacking(price, left, speed):
        return
    values = {"needs": needs(price, speed), "advice": advice(price, left, speed)}
    fits = _tasks_that_fit(rest, len(plan.tasks), left, speed)
    if len(plan.tasks) > 1 and fits:
        raise UsageError(message("shift.no-room-tasks", count=fits, **values))
    raise UsageError(message("shift.no-room", **values))


def needs(price: Price, speed: Speed | None) -> Message:
    """Requests, tokens and, where they are known, minutes."""
    values = {"requests": price.requests, "tokens": price.tokens}
    if speed is None:
        return message("shift.needs", **values)
    seconds = price.seconds(speed)
    if seconds < 120:
        return message("shift.needs-seconds", seconds=seconds, **values)
    return message("shift.needs-minutes", minutes=seconds / 60, **values)


def _tasks_that_fit(rest: Sequence[Ask], tasks: int, left: Budget, speed: Speed | None) -> int:
    """How many of a suite's tasks, from the first on, the budget holds."""
    for count in range(tasks - 1, 0, -1):
        part = [ask for ask in rest if ask.item < count]
        if not lacking(price_of(part, speed), left, speed):
            return count
    return 0


def bounded(
    flow: Flow[Answers], plan: ShiftPlan, left: Callable[[], Budget], speed: Speed | None
) -> Flow[Answers]:
    """The same flow; what is not asked in any case is not begun where the budget does not hold it.

    Args:
        flow: Of a shift run.
        plan: Of that run.
        left: Of the budget, now.
        speed: Of the endpoint, as far as it is known.

    Raises:
        BudgetSpent: before the part, saying what it needs.
    """
    sure = {ask.id for ask in certain(plan)}
    asks = next(flow)
    while True:
        price = price_of(asks, speed)
        if asks[0].id not in sure and lacking(price, left(), speed):
            flow.close()
            raise BudgetSpent(message("shift.no-room-more", needs=needs(price, speed)))
        answers = yield asks
        try:
            asks = flow.send(answers)
        except StopIteration as stop:
            result: Answers = stop.value
            return result


__all__ = [
    "Price",
    "Speed",
    "advice",
    "bounded",
    "certain",
    "lacking",
    "must_fit",
    "needs",
    "parts_of",
    "price_of",
    "speed_of",
]
