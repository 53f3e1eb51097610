"""Asks a prompt as it is and as it was changed, and says what became of the accuracy."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.content import design_key, digest
from kvphase.runs import shift_plan
from kvphase.runs.shift_grade import check_rule
from kvphase.runs.shift_place import WORTH, Rendered, common
from kvphase.stats.intervals import Z_TWO_SIDED_95, wilson
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.placement.found import Layout
    from kvphase.types import Answers, Flow, Runtime


@dataclass(frozen=True, slots=True)
class Level:
    """Right answers to one version of the prompts."""

    correct: int
    n: int
    ci95: tuple[float, float]
    """Wilson's interval, tasks as independent."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.correct / max(1, self.n)


@dataclass(frozen=True, slots=True)
class Verified:
    """Both versions of every task, asked once each."""

    before: Level
    after: Level
    gained: int
    """Tasks that became right."""
    lost: int
    """Tasks that became wrong."""
    difference_pp: float
    ci95_pp: tuple[float, float]
    """Of the difference, paired by task."""
    p_value: float
    """Exact two-sided sign test over the tasks whose answer changed between right and wrong."""
    score: float | None
    """Mean rise of the right answer's log-probability; None where it is not known."""
    unfinished: int
    answers: tuple[tuple[str, str], ...]
    """What was answered to each task, before and after."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What is asked: each task before and after, in the order of the tasks."""

    asks: tuple[Ask, ...]
    matches: tuple[str, ...]


async def questions(runtime: Runtime, layouts: Sequence[Layout]) -> Questions:
    """The two versions of every task as asks.

    Raises:
        UsageError: a task has no expected answer, it cannot be spelled, or it does not fit.
    """
    rendered = Rendered(runtime)
    asks: list[Ask] = []
    for item, layout in enumerate(layouts):
        source = layout.source
        if source.answer is None and not source.match.startswith("command:"):
            raise UsageError(message("layout.no-answer", name=source.name))
        check_rule(source.name, source.match, source.answer)
        spelled = await shift_plan.spelled_answers(runtime, rendered, source)
        generate = shift_plan.tokens_to_generate(source, spelled.size)
        most = runtime.limits.context_tokens
        if max(layout.total, layout.total_after) + generate > most:
            longest = max(layout.total, layout.total_after) + generate
            raise UsageError(message("layout.too-long", name=source.name, n=longest, most=most))
        shared = common(layout.ids, layout.ids_after)
        shared = shared if WORTH <= shared < min(layout.total, layout.total_after) else 0
        expected = spelled.expected or ""
        for block, ids in enumerate((layout.ids, layout.ids_after)):
            design = json.dumps([list(ids), expected, source.match, generate])
            asks.append(
                Ask(
                    id=digest(design_key(design), item * 2 + block, Arm.SCREEN),
                    prefix=ids[:shared],
                    suffix=ids[shared:],
                    target=_target(layout, after=bool(block)),
                    expected=expected,
                    candidates=(expected,),
                    arm=Arm.SCREEN,
                    item=item,
                    block=block,
                    context=item,
                    pad=sum(put.size for put in layout.puts) if block else 0,
                    generate=generate,
                )
            )
    return Questions(tuple(asks), tuple(layout.source.match for layout in layouts))


def _target(layout: Layout, *, after: bool) -> int:
    """Start of the first span; what else an answer rests on nobody said."""
    if not layout.spans:
        return 0
    stand = layout.spans[0].after if after else layout.spans[0].before
    return 0 if stand is None else stand.start


def verify(asked: Questions) -> Flow[Verified]:
    """Ask everything and compare.

    Yields:
        All asks at once.

    Returns:
        Both accuracies.
    """
    answers = yield list(asked.asks)
    return compared(answers)


def compared(answers: Answers) -> Verified:
    """What the answers to both versions say; a task without both finished answers is left out."""
    items = np.unique(answers.item)
    rows = [
        [np.flatnonzero((answers.item == item) & (answers.block == block)) for block in (0, 1)]
        for item in items
    ]
    pairs = [(int(a[0]), int(b[0])) for a, b in rows if len(a) and len(b)]
    right = answers.correct
    done = [(a, b) for a, b in pairs if right[a] >= 0 and right[b] >= 0]
    n = len(done)
    first, second = sum(int(right[a]) for a, _ in done), sum(int(right[b]) for _, b in done)
    gained = sum(int(right[b] > right[a]) for a, b in done)
    lost = sum(int(right[b] < right[a]) for a, b in done)
    rise = np.array([answers.logprob[b] - answers.logprob[a] for a, b in done])
    known = len(rise) > 0 and bool(np.isfinite(rise).all())
    return Verified(
        before=Level(first, n, wilson(first, n)),
        after=Level(second, n, wilson(second, n)),
        gained=gained,
        lost=lost,
        difference_pp=100 * (second - first) / max(1, n),
        ci95_pp=paired(gained, lost, n),
        p_value=sign(gained, lost),
        score=float(rise.mean()) if known else None,
        unfinished=len(pairs) - n,
        answers=tuple((str(answers.text[a]), str(answers.text[b])) for a, b in pairs),
    )


def paired(gained: int, lost: int, n: int) -> tuple[float, float]:
    """95% interval of ``(gained - lost) / n`` in percentage points, pairs as independent.

    Wald's with one success and one failure added.

    Source: D. G. Bonett and R. M. Price, Adjusted Wald confidence interval for a difference of
    binomial proportions based on paired data, J. Educ. Behav. Stat. 37 (2012).
    """
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    half = Z_TWO_SIDED_95 * math.sqrt(max(0.0, up + down - (up - down) ** 2) / (n + 2))
    return 100 * max(-1.0, up - down - half), 100 * min(1.0, up - down + half)


def sign(gained: int, lost: int) -> float:
    """Two-sided p value that gains and losses are equally likely, given how many there are."""
    n, least = gained + lost, min(gained, lost)
    tail: float = sum(math.comb(n, k) for k in range(least + 1)) / 2.0**n
    return min(1.0, 2 * tail)


__all__ = ["Level", "Questions", "Verified", "compared", "questions", "verify"]
