"""``--plan``: what each rung would take on this endpoint, before anything is asked in earnest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes import confirm as confirming
from kvphase.probes.confirm import ConfirmDesign
from kvphase.runs.budget import DEFAULT_SECONDS, Budget, Meter
from kvphase.runs.estimate import Cost, Rate, fits, timed
from kvphase.runs.flips import plan_flip
from kvphase.runs.ladder import adapts
from kvphase.runs.planning import (
    confirm_cost,
    fitted,
    flip_cost,
    least_cost,
    needle_cost,
    no_room,
    pilot_cost,
    pilot_tries,
)
from kvphase.runs.possible import possible
from kvphase.runs.settings import FLIP, Settings, choose, rungs
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey
from kvphase.types import Template

if TYPE_CHECKING:
    from kvphase.probes.design import NeedleDesign
    from kvphase.runtimes.adapters import Choice
    from kvphase.types import About, Runtime, Vocab

EXPECTED_PP, EXPECTED_MEAN = 20.0, 0.7
"""A finding of middling size, for the confirmation's estimate."""


@dataclass(frozen=True, slots=True)
class RungPlan:
    """One rung as it would be asked."""

    name: str
    """``flip``, ``needle-TOKENS``, ``confirm-TOKENS``."""
    tokens: int | None
    """Of a prompt; None where prompts differ in length."""
    contexts: int
    cost: Cost
    skipped: str | None = None
    """Why it would be left out."""
    only_if: bool = False
    """Asked only if something is found."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would take if nothing ends it early."""

    about: About
    rate: Rate
    rungs: tuple[RungPlan, ...]
    budget: Budget
    total: Cost
    """Of all rungs that would be climbed in any case."""


async def plan_run(
    target: str,
    settings: Settings,
    budget: Budget | None = None,
    *,
    choice: Choice | None = None,
) -> Plan:
    """Time one prefill of about a thousand tokens and a few questions, and work out the rest.

    Args:
        target: As for ``check``.
        settings: As for ``check``.
        budget: As for ``check``; a quarter of an hour if not given.
        choice: As for ``check``.

    Raises:
        UsageError: bad input. RuntimeFault: the model cannot be reached or asked.
    """
    meter = Meter(Budget(seconds=DEFAULT_SECONDS) if budget is None else budget)
    async with open_runtime(target, choice=choice) as runtime:
        settings = possible(settings, runtime)
        vocab = await survey(runtime.tokenize)
        template = await runtime.template() if settings.chat else Template()
        rate = await timed(runtime, vocab, meter)
        made = await _rungs(runtime, vocab, template, settings, rate, meter)
        total = sum(
            (rung.cost for rung in made if rung.skipped is None and not rung.only_if),
            start=NOTHING,
        )
        return Plan(runtime.about, rate, tuple(made), meter.budget, total)


NOTHING = Cost(0, 0, 0, 0, 0, 0.0)


async def _rungs(
    runtime: Runtime,
    vocab: Vocab,
    template: Template,
    settings: Settings,
    rate: Rate,
    meter: Meter,
) -> list[RungPlan]:
    """Every rung in turn, what the ones before it take being spent."""
    left = meter.left()
    names = rungs(settings, runtime.about, runtime.limits)
    first = next((name for name in names if name != FLIP), None)
    made: list[RungPlan] = []
    for place, name in enumerate(names):
        if name == FLIP:
            rung = await _flip(runtime, vocab, settings, rate, left)
        else:
            design = choose(settings, runtime.about, runtime.limits, template, int(name))
            last = place == len(names) - 1
            rung = _needles(design, settings, runtime, rate, left, first=name == first, last=last)
        made.append(rung)
        if rung.skipped is None:
            left = _without(left, rung.cost)
        if name == first and settings.confirm != "never" and rung.skipped is None:
            made.append(_confirm(design, settings, rate, left))
    return made


async def _flip(
    runtime: Runtime, vocab: Vocab, settings: Settings, rate: Rate, left: Budget
) -> RungPlan:
    try:
        flips = await plan_flip(runtime, vocab, settings.seed)
    except UsageError as error:
        return RungPlan(FLIP, None, 0, NOTHING, str(error))
    price = flip_cost(rate, flips.tokens, flips.questions)
    return RungPlan(FLIP, None, len(flips.prompts), price, _why_not(price, left))


def _needles(
    design: NeedleDesign,
    settings: Settings,
    runtime: Runtime,
    rate: Rate,
    left: Budget,
    *,
    first: bool,
    last: bool,
) -> RungPlan:
    name = f"needle-{design.context_tokens}"
    pilot = NOTHING
    if adapts(settings, runtime.about):
        # A pilot that finds its number of records at the second try is the usual one.
        tries = min(2, pilot_tries(design, rate, left))
        pilot = pilot_cost(rate, design, tries)
    if settings.questions is None and not settings.frozen:
        fit_in = fitted(
            design,
            rate,
            _without(left, pilot),
            first=first,
            last=last,
            toy=runtime.about.toy,
            cold=settings.cold,
        )
        if fit_in is None:
            price = least_cost(rate, design) + pilot
            return RungPlan(name, design.context_tokens, 0, price, no_room(price, left))
        design = fit_in
    price = needle_cost(rate, design) + pilot
    return RungPlan(name, design.context_tokens, design.contexts, price)


def _confirm(design: NeedleDesign, settings: Settings, rate: Rate, left: Budget) -> RungPlan:
    """What confirming a middling finding of period 4 would take."""
    questions = min(confirming.QUESTIONS, design.asked)
    contents = confirming.contents_for(4, questions, EXPECTED_MEAN, EXPECTED_PP)
    price = confirm_cost(rate, design, ConfirmDesign(4, contents, questions))
    return RungPlan(
        f"confirm-{design.context_tokens}",
        design.context_tokens,
        contents,
        price,
        _why_not(price, left) if design.kind == "insequence" else message("run.confirm-insequence"),
        only_if=settings.confirm != "always",
    )


def _why_not(price: Cost, left: Budget) -> str | None:
    return None if fits(price, left) else no_room(price, left)


def _without(left: Budget, price: Cost) -> Budget:
    """What is left of each bound when this is spent too."""

    def rest(bound: float | None, used: float) -> float | None:
        return None if bound is None else max(0.0, bound - used)

    questions = rest(left.questions, price.questions + price.prefills)
    tokens = rest(left.tokens, price.tokens)
    return replace(
        left,
        seconds=rest(left.seconds, price.seconds),
        questions=None if questions is None else int(questions),
        tokens=None if tokens is None else int(tokens),
        dollars=rest(left.dollars, price.dollars(left) or 0.0),
    )
