"""What each rung costs, and how much of it fits into a budget."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.probes.confirm import extra_tokens
from kvphase.probes.design import QUESTION, NeedleDesign, needed
from kvphase.runs.estimate import Cost, Rate, cost, room
from kvphase.runs.settings import COLD_LONG, FLIP

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.probes.confirm import ConfirmDesign
    from kvphase.runs.budget import Budget
    from kvphase.types import Limits, Template, Vocab

WHOLE, HALF, MOST = 1.0, 0.5, 0.8
"""Shares of what is left: a rung that others follow may take half, the last one most of it; the
rest is for a confirmation."""
FEWEST_CONTEXTS = 2
COLD_SHARE = 0.15
"""Share of a rung's time for cold asks, each of which is a prefill."""
MOST_COLD = 100
PILOT_TRIES, LONG_TRIES = 5, 2
"""Contexts that a pilot may ask: at the ladder's usual length, and beyond it."""
PILOT_SHARE = 0.34
USUAL = 4096
LONG = 100.0
"""Seconds from which a time is said in minutes."""
SPARE = 1.1
"""Advised tokens and dollars over those reckoned."""


def rung_name(name: str) -> str:
    """As stages are called."""
    return name if name == FLIP else f"needle-{name}"


def flip_cost(rate: Rate, tokens: int, questions: int) -> Cost:
    """Of the flip: every prompt is evaluated whole."""
    each = -(-tokens // max(1, questions))
    return cost(rate, shared=0, whole=questions, length=each, questions=0, suffix=0)


def needle_cost(rate: Rate, design: NeedleDesign, share: float = 1.0) -> Cost:
    """Of a rung of needles, its audit included; ``share`` of its contexts asked."""
    prefills = max(1, round(design.contexts * design.pads * share))
    again = min(design.repeats, prefills * design.asked) + min(
        design.alone, prefills * design.asked
    )
    return cost(
        rate,
        shared=prefills,
        whole=min(design.cold, prefills * design.asked),
        length=design.context_tokens,
        questions=prefills * design.asked + again,
        suffix=QUESTION,
    )


def pilot_cost(rate: Rate, design: NeedleDesign, tries: int) -> Cost:
    """Of a pilot that needs all its tries."""
    return cost(
        rate,
        shared=tries,
        whole=0,
        length=design.context_tokens,
        questions=tries * design.records,
        suffix=QUESTION,
    )


def confirm_cost(rate: Rate, design: NeedleDesign, wanted: ConfirmDesign) -> Cost:
    """Of a confirmation, tail control included."""
    return cost(
        rate,
        shared=wanted.prefills,
        whole=0,
        length=design.context_tokens + extra_tokens(wanted.period) // 2,
        questions=wanted.prefills * wanted.questions,
        suffix=QUESTION,
    )


def least_cost(rate: Rate, design: NeedleDesign) -> Cost:
    """Of the smallest rung of needles that is worth asking."""
    fewest = replace(design, contexts=FEWEST_CONTEXTS, cold=COLD_LONG, repeats=0, alone=0)
    return needle_cost(rate, fewest)


def no_room(
    price: Cost, left: Budget | None = None, *, budget: Budget | None = None, share: float = 1.0
) -> Message:
    """Says what something needs that the budget does not hold, in the unit that is shortest.

    Args:
        price: Of the least that is worth asking.
        left: Of the budget; without it time and tokens are named.
        budget: The whole of it: what was used of it already will be used again.
        share: Of what is left that may be used.

    Returns:
        With the ``--budget`` options that would hold it among its values, as ``option``.
    """
    lacks = [] if left is None else _lacking(price, left, share)
    values = {
        "seconds": price.seconds,
        "tokens": price.tokens,
        "option": " ".join(
            _option(name, need / share + _used(name, left, budget)) for name, need in lacks
        ),
    }
    if lacks and lacks[0][0] != "seconds":
        name, need = lacks[0]
        return message(f"run.no-room-{name}", **{**values, name: need})
    if price.seconds < LONG:
        return message("run.no-room", **values)
    return message("run.no-room-long", **{**values, "minutes": price.seconds / 60})


def _lacking(price: Cost, left: Budget, share: float) -> list[tuple[str, float]]:
    """Units of which there is too little, with what is needed of each; the shortest first."""
    needs: dict[str, float] = {
        "seconds": price.seconds,
        "tokens": price.tokens,
        "questions": price.questions + price.prefills,
        "dollars": price.dollars(left) or 0.0,
    }
    ratios = [
        (bound * share / need, name)
        for name, need in needs.items()
        if need and (bound := getattr(left, name)) is not None
    ]
    return [(name, needs[name]) for ratio, name in sorted(ratios) if ratio < 1.0]


def _used(name: str, left: Budget | None, budget: Budget | None) -> float:
    """What a budget has less than it had."""
    before, now = getattr(budget, name, None), getattr(left, name, None)
    return 0.0 if before is None or now is None else float(before - now)


def _option(name: str, amount: float) -> str:
    """The ``--budget`` option for so much; time and tokens vary, questions are counted."""
    if name == "questions":
        return f"--budget {math.ceil(amount - 1e-9)}q"
    if name == "tokens":
        return f"--budget {math.ceil(SPARE * amount / 1000)}ktok"
    if name == "dollars":
        return f"--budget '${_dollars(SPARE * amount)}'"
    return f"--budget {math.ceil(1.5 * amount / 60) + 1}m"


def _dollars(value: float) -> str:
    """To two digits, rounded up."""
    digits = 1 - math.floor(math.log10(max(value, 1e-9)))
    unit = 10.0**-digits
    return f"{math.ceil(value / unit) * unit:.{max(0, digits)}f}"


def pilot_tries(design: NeedleDesign, rate: Rate, left: Budget) -> int:
    """Contexts that a pilot at this length may ask: not more than a third of what is left."""
    most = PILOT_TRIES if design.context_tokens <= USUAL else LONG_TRIES
    holds = room(pilot_cost(rate, design, 1), left) * PILOT_SHARE
    return max(1, int(min(most, holds)))


def most_records(design: NeedleDesign, vocab: Vocab, limits: Limits, template: Template) -> int:
    """Most records that fit the context and the tokenizer's one-token words."""
    start, tail = len(limits.bos) + len(template.head), len(template.tail)
    step = design.modulus
    records = (len(vocab.keys) - design.demonstrations) // step * step
    while records > step and (
        needed(replace(design, records=records), start, tail) > design.context_tokens
    ):
        records -= step
    return max(step, records)


def share_of(*, last: bool, toy: bool) -> float:
    """Of what is left, what a rung of needles may use."""
    return MOST if last or toy else HALF


def fitted(
    design: NeedleDesign,
    rate: Rate,
    left: Budget,
    *,
    first: bool,
    last: bool,
    toy: bool,
    cold: int | None,
) -> NeedleDesign | None:
    """The design with as many contexts and cold asks as fit, none if not even two contexts do.

    Args:
        design: With the contexts that are wanted.
        rate: Of the endpoint.
        left: Of the budget.
        first: The shortest rung of the ladder, where most cold asks are made.
        last: No rung follows.
        toy: Toys are asked as much as ever fits.
        cold: Cold asks that the user wants.
    """
    share = share_of(last=last, toy=toy)
    fewest = 1 if toy or design.kind == "prefix" else FEWEST_CONTEXTS
    bare = replace(design, contexts=1, cold=0, repeats=0, alone=0)
    fit_in = room(needle_cost(rate, bare), left) * share
    if fit_in < fewest:
        return None
    wanted = replace(design, cold=_cold(design, rate, left, share, first=first, toy=toy, cold=cold))
    audit = needle_cost(rate, replace(wanted, contexts=1)).seconds - needle_cost(rate, bare).seconds
    each = needle_cost(rate, bare).seconds
    reserved = audit / each if each > 0 else 0.0
    contexts = min(design.contexts, max(fewest, int(min(fit_in, 1e9) - reserved)))
    return replace(wanted, contexts=contexts)


def _cold(
    design: NeedleDesign,
    rate: Rate,
    left: Budget,
    share: float,
    *,
    first: bool,
    toy: bool,
    cold: int | None,
) -> int:
    """Cold asks: as many as a share of the rung's budget holds, few beyond the first rung."""
    if cold is not None:
        return cold
    whole = cost(
        rate, shared=0, whole=1, length=design.context_tokens, questions=0, suffix=QUESTION
    )
    holds = min(room(whole, left) * share * COLD_SHARE, 1e9)
    if toy:
        return min(design.cold, max(COLD_LONG, int(holds)))
    most = min(MOST_COLD, max(COLD_LONG, int(holds)))
    return most if first else min(most, COLD_LONG)
