"""How long the server takes for a token and for a question, and what a rung will cost."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.probes.content import filler
from kvphase.runs.execute import complete
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from kvphase.runs.budget import Budget, Meter
    from kvphase.types import Limits, Reply, Runtime, Vocab

PREFILL = 1024
"""Tokens of the prompt that is timed."""
QUESTIONS = 9
"""Questions on it; the first one pays for the prefill."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast this endpoint is, as timed."""

    prefill: float
    """Prompt tokens a second."""
    ask: float
    """Seconds of a question on a cached prefix."""
    reuse: bool = True
    """Whether the prefix was reused at all."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a rung takes: whole prompts evaluated, and questions on a cached prefix."""

    prefills: int
    prefill_tokens: int
    questions: int
    question_tokens: int
    """Evaluated for the questions: their own few tokens."""
    cached_tokens: int
    """Read from the cache."""
    seconds: float

    @property
    def tokens(self) -> int:
        """Evaluated and generated."""
        return self.prefill_tokens + self.question_tokens + self.questions + self.prefills

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.prefills + other.prefills,
            self.prefill_tokens + other.prefill_tokens,
            self.questions + other.questions,
            self.question_tokens + other.question_tokens,
            self.cached_tokens + other.cached_tokens,
            self.seconds + other.seconds,
        )

    def dollars(self, budget: Budget) -> float | None:
        """Its price; None without prices."""
        if budget.prices is None:
            return None
        evaluated = self.prefill_tokens + self.question_tokens
        return budget.prices.of(evaluated, self.cached_tokens, self.questions)

    def times(self, factor: float) -> Cost:
        """The same, ``factor`` times."""
        return Cost(
            round(self.prefills * factor),
            round(self.prefill_tokens * factor),
            round(self.questions * factor),
            round(self.question_tokens * factor),
            round(self.cached_tokens * factor),
            self.seconds * factor,
        )


def cost(
    rate: Rate,
    *,
    shared: int,
    whole: int,
    length: int,
    questions: int,
    suffix: int,
) -> Cost:
    """Cost of ``questions`` on ``shared`` prefixes, and of ``whole`` prompts asked on their own.

    Args:
        rate: Of the endpoint.
        shared: Prefixes that are evaluated once each.
        whole: Prompts evaluated from their first token (cold asks, the flip).
        length: Tokens of a prompt.
        questions: On the shared prefixes.
        suffix: Tokens of a question.
    """
    prefills = shared + whole + (0 if rate.reuse else questions)
    tokens = prefills * length
    each = rate.ask if rate.reuse else 0.0
    return Cost(
        prefills=prefills,
        prefill_tokens=tokens,
        questions=questions,
        question_tokens=questions * suffix if rate.reuse else 0,
        cached_tokens=questions * (length - suffix) if rate.reuse else 0,
        seconds=tokens / rate.prefill + questions * each + whole * rate.ask,
    )


def fits(price: Cost, left: Budget, share: float = 1.0) -> bool:
    """Whether ``price`` fits into ``share`` of what is left of the budget."""
    return room(price, left) * share >= 1.0


def room(price: Cost, left: Budget) -> float:
    """How often ``price`` fits into what is left of the budget; infinite without bounds."""
    asks = price.questions + price.prefills
    ratios = [
        bound / need
        for bound, need in (
            (left.seconds, price.seconds),
            (left.tokens, price.tokens),
            (left.questions, asks),
            (left.dollars, price.dollars(left)),
        )
        if bound is not None and need
    ]
    return min(ratios, default=float("inf"))


def timing(vocab: Vocab, limits: Limits, seed: int) -> list[Ask]:
    """One prompt of about a thousand filler tokens, and a few questions on it.

    ``seed`` must be a new one each time: a server that still holds the last prompt would seem to
    read a thousand tokens in no time.
    """
    size = min(PREFILL, limits.context_tokens - 16) - len(limits.bos) - 2
    prefix = (*limits.bos, *filler(seed, vocab, max(8, size)))
    asks = []
    for number, word in enumerate(vocab.keys[:QUESTIONS]):
        asks.append(
            Ask(
                id=f"timing-{number}",
                prefix=prefix,
                suffix=(word.id, vocab.separator.id),
                target=len(prefix),
                expected=vocab.values[0].text,
                candidates=(vocab.values[0].text,),
                arm=Arm.PILOT,
                item=number,
                block=0,
                context=0,
                pad=0,
                question=len(prefix),
            )
        )
    return asks


def rate_of(asks: list[Ask], replies: list[tuple[float, int | None]]) -> Rate:
    """The endpoint's speed from the seconds and prefilled tokens of each timed ask.

    The first ask pays for the prefill and is a question besides; the fastest of the others is what
    a question takes when nothing else disturbs it, their mean what it takes on average.
    """
    (first, evaluated), *later = replies
    each = sum(seconds for seconds, _ in later) / max(1, len(later))
    reused = all(n is None or n < len(asks[0].prefix) // 2 for _, n in later)
    slow = first - each if reused else first
    tokens = evaluated or len(asks[0].prefix)
    return Rate(prefill=tokens / max(slow, 1e-3), ask=each, reuse=reused)


def reply_facts(reply: Reply) -> tuple[float, int | None]:
    """What `rate_of` needs of a reply."""
    return reply.seconds, reply.prefilled


async def timed(runtime: Runtime, vocab: Vocab, meter: Meter) -> Rate:
    """How fast this endpoint is: one prefill of about a thousand tokens, a few questions on it.

    Raises:
        RuntimeFault: the model cannot be asked.
    """
    asks = timing(vocab, runtime.limits, secrets.randbits(32))
    replies = []
    for ask in asks:
        meter.check(ask)
        reply = await complete(ask, runtime, meter=meter)
        meter.add(ask, reply)
        meter.questions -= 1  # a bound on questions is one on those that are measured
        replies.append(reply_facts(reply))
    return rate_of(asks, replies)
