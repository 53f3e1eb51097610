"""What a run may cost, and what it has cost so far."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import KvphaseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Ask, Reply

DEFAULT_SECONDS = 900.0
"""What a run may take when nothing else was asked for."""
MANY = 2**31
"""More questions than any run asks."""
SETTLING, SETTLING_SHARE = 5.0, 0.02
"""Seconds of a budget, or a share of it, that are kept for the statistics at the end."""
_TIME = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MANY = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_FORM = re.compile(r"(?P<n>\d+(?:\.\d+)?)(?P<unit>s|m|h|q|(?P<many>[kmg]?)tok)", re.I)
_MONEY = re.compile(r"\$(\d+(?:\.\d+)?)")


class BudgetSpent(KvphaseError):
    """The budget is used up; what was measured is kept and reported as partial."""

    exit_code = 0


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens, as the user gave them."""

    prompt: float
    answer: float
    cached: float | None = None
    """Prompt tokens from the cache; as ``prompt`` if not given."""

    def of(self, prefilled: float, cached: float, generated: float) -> float:
        """Dollars for so many tokens."""
        hit = self.prompt if self.cached is None else self.cached
        return (prefilled * self.prompt + cached * hit + generated * self.answer) / 1e6

    @classmethod
    def parse(cls, text: str) -> Prices:
        """From ``PROMPT,ANSWER[,CACHED]``.

        Raises:
            UsageError: it is not that.
        """
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 3) or not all(0 <= n < 1e6 for n in numbers):
            raise UsageError(message("run.bad-price", text=text))
        return cls(*numbers)


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper bounds, each None for no bound. Checked before each ask, so exceeded by one at most."""

    questions: int | None = None
    tokens: int | None = None
    """Prefilled plus generated tokens, by the runtime's own figures."""
    seconds: float | None = None
    dollars: float | None = None
    prices: Prices | None = None
    """Needed for a bound in dollars."""

    @classmethod
    def parse(cls, texts: Sequence[str], prices: Prices | None = None) -> Budget:
        """From texts such as ``15m``, ``2000q``, ``3Mtok``, ``$2``; several bounds may be given.

        Raises:
            UsageError: a text is none of these, or dollars were given without prices.
        """
        budget = cls(prices=prices)
        for text in texts:
            bound: dict[str, Any] = _bound(text.strip())
            budget = replace(budget, **bound)
        if budget.dollars is not None and prices is None:
            raise UsageError(message("run.no-price"))
        return budget

    @property
    def bounded(self) -> bool:
        """Whether tokens or money are bounded: what an endpoint of somebody else's needs."""
        return self.tokens is not None or self.dollars is not None


def _bound(text: str) -> dict[str, float | int]:
    """The one bound that ``text`` names."""
    if money := _MONEY.fullmatch(text):
        found: dict[str, float | int] = {"dollars": float(money[1])}
    elif form := _FORM.fullmatch(text):
        unit, n = form["unit"].lower(), float(form["n"])
        if unit in _TIME:
            found = {"seconds": n * _TIME[unit]}
        elif unit == "q":
            found = {"questions": int(n)}
        else:
            found = {"tokens": int(n * _MANY[form["many"].lower()])}
    else:
        raise UsageError(message("run.bad-budget", text=text))
    if not all(0 < value < 1e15 for value in found.values()):
        raise UsageError(message("run.bad-budget", text=text))
    return found


@dataclass(slots=True)
class Meter:
    """What one sitting has used of its budget; the clock starts with it."""

    budget: Budget
    started: float = field(default_factory=time.monotonic)
    questions: int = 0
    prefilled: int = 0
    cached: int = 0
    generated: int = 0
    prefill_rate: float | None = None
    """Prompt tokens a second, once it was measured: a prefill that cannot end in time is not begun.
    """
    _prefix: tuple[int, ...] | None = None

    @property
    def seconds(self) -> float:
        """Since the sitting began."""
        return time.monotonic() - self.started

    @property
    def tokens(self) -> int:
        """Prefilled and generated so far."""
        return self.prefilled + self.generated

    @property
    def dollars(self) -> float:
        """Spent so far; 0 without prices."""
        prices = self.budget.prices
        return prices.of(self.prefilled, self.cached, self.generated) if prices else 0.0

    @property
    def _settling(self) -> float:
        """Seconds kept for working out the verdict when the asking is over."""
        return min(SETTLING, SETTLING_SHARE * (self.budget.seconds or 0.0))

    def check(self, ask: Ask | None = None) -> None:
        """Raise BudgetSpent if nothing is left, or not enough for the prefill that ``ask`` needs.

        Raises:
            BudgetSpent: which bound it was.
        """
        ahead = 0.0
        if ask is not None and ask.prefix != self._prefix and self.prefill_rate:
            ahead = len(ask.prompt) / self.prefill_rate
        used = {
            "questions": (self.questions, self.budget.questions),
            "tokens": (self.tokens, self.budget.tokens),
            "seconds": (self.seconds + ahead + self._settling, self.budget.seconds),
            "dollars": (self.dollars, self.budget.dollars),
        }
        for name, (spent, bound) in used.items():
            if bound is not None and spent >= bound:
                raise BudgetSpent(message(f"run.spent-{name}", bound=bound))

    def add(self, ask: Ask, reply: Reply) -> None:
        """Count one reply; what a runtime does not count is taken from the prompt's length."""
        self.questions += 1
        cached = reply.cached or 0
        self.cached += cached
        self.prefilled += len(ask.prompt) - cached if reply.prefilled is None else reply.prefilled
        self.generated += reply.generated
        self._prefix = ask.prefix

    def surely_fit(self) -> int:
        """Questions like those so far that fit what is left twice over; at least one."""
        asked, left = max(self.questions, 1), self.left()
        bounds = (
            (left.questions, asked / 2),  # a question costs one, no more
            (left.tokens, self.tokens),
            (left.seconds, self.seconds),
            (left.dollars, self.dollars),
        )
        fits = [have * asked / max(2 * spent, 1e-9) for have, spent in bounds if have is not None]
        return max(1, int(min(fits, default=MANY)))

    def left(self) -> Budget:
        """What remains of each bound; prices kept."""

        def rest(bound: float | None, used: float) -> float | None:
            return None if bound is None else max(0.0, bound - used)

        budget = self.budget
        questions, tokens = rest(budget.questions, self.questions), rest(budget.tokens, self.tokens)
        return Budget(
            questions=None if questions is None else int(questions),
            tokens=None if tokens is None else int(tokens),
            seconds=rest(budget.seconds, self.seconds),
            dollars=rest(budget.dollars, self.dollars),
            prices=budget.prices,
        )
