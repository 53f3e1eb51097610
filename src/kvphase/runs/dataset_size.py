"""How many of a file's prompts a budget holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.catalogue import Message, message
from kvphase.errors import UsageError
from kvphase.runs.estimate import Cost, Rate, cost, room
from kvphase.runs.execute import complete
from kvphase.runs.planning import no_room
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from kvphase.probes.dataset import Prompt
    from kvphase.probes.residues import Residues
    from kvphase.runs.budget import Budget, Meter
    from kvphase.runs.dataset_place import Survey
    from kvphase.types import Runtime

ASIS_SHARE = 0.4
"""Share of the budget for a file's prompts as they stand, where its positions may be trusted."""
SHIFTED_SHARE = 0.45
"""Share for the shifted prompts: their control takes as much again."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Prompts that are asked."""

    asis: int
    shifted: int
    cost_asis: Cost | None = None
    cost_shifted: Cost | None = None
    why: Message | None = None
    """Why nothing is shifted."""

    def must_hold(self, spread: str) -> None:
        """Refuse a budget that holds nothing.

        Raises:
            UsageError: saying what one prompt would need.
        """
        if self.shifted or (spread == "spread" and self.asis) or self.why is None:
            return
        minutes = math.ceil(1.2 * float(self.cost_shifted.seconds if self.cost_shifted else 0) / 60)
        raise UsageError(message("dataset.no-room", why=self.why, minutes=minutes + 1))


async def timed(runtime: Runtime, prompt: Prompt, meter: Meter) -> Rate:
    """How fast this endpoint answers one of the file's prompts, its answer's tokens included.

    Raises:
        RuntimeFault: it cannot be asked.
    """
    ask = Ask(
        id="timing",
        prefix=(),
        suffix=prompt.ids,
        target=prompt.facts[0].target,
        expected=prompt.facts[0].fact.answers[0],
        candidates=(prompt.facts[0].fact.answers[0],),
        # A server that holds this prompt already would seem to read it in no time.
        arm=Arm.COLD if runtime.limits.cold else Arm.PILOT,
        item=0,
        block=0,
        context=0,
        pad=0,
        generate=prompt.generate,
    )
    meter.check()
    reply = await complete(ask, runtime)
    meter.add(ask, reply)
    meter.questions -= 1  # a bound on questions is one on those that are measured
    return Rate(prefill=len(prompt.ids) / max(reply.seconds, 1e-4), ask=0.0)


def sized(
    survey: Survey,
    residues: Residues,
    rate: Rate,
    left: Budget,
    shifts: int,
    questions: int | None,
) -> Sizes:
    """As many prompts as fit what is left, from the first on.

    Args:
        survey: The prompts in their order.
        residues: Whether the file's own positions may be trusted.
        rate: Of the endpoint.
        left: Of the budget.
        shifts: Of each prompt.
        questions: Requests for shifted prompts that the user wants; the budget is not asked then.
    """
    lengths = [len(one.prompt.ids) for one in survey.located]
    trusted = residues.spread == "spread"
    asis = _fitting(lengths, 1, rate, left, ASIS_SHARE) if trusted else 0
    each = shifts if trusted else shifts + 1
    share = SHIFTED_SHARE * (1 - ASIS_SHARE) if trusted else SHIFTED_SHARE
    if questions is not None:
        count = min(len(lengths), max(1, questions // shifts))
        asis = min(asis or len(lengths), questions) if trusted else 0
    else:
        count = _fitting(lengths, each, rate, left, share)
    why = None
    least = _price(lengths[:1], each, rate)
    if not count:
        why = no_room(least)
    return Sizes(
        asis=asis if trusted else count,
        shifted=count,
        cost_asis=_price(lengths[: asis if trusted else count], 1, rate),
        cost_shifted=_price(lengths[:count], shifts, rate) if count else least,
        why=why,
    )


def _price(lengths: list[int], each: int, rate: Rate) -> Cost:
    """Of asking the prompts ``each`` times."""
    n = len(lengths)
    mean = math.ceil(sum(lengths) / n) if n else 0
    return cost(rate, shared=0, whole=n * each, length=mean, questions=0, suffix=0)


def _fitting(lengths: list[int], each: int, rate: Rate, left: Budget, share: float) -> int:
    """The largest number of first prompts whose price fits."""
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        if room(_price(lengths[:middle], each, rate), left) * share >= 1.0:
            low = middle
        else:
            high = middle - 1
    return low


__all__ = ["Sizes", "sized", "timed"]
