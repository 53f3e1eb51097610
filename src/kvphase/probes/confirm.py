"""Confirm: whole contexts shifted, to see which position an effect follows.

A content is a context of the in-sequence design, drawn anew. It is asked at several prefills, the
same randomly drawn questions on each: ``a`` more filler tokens at the very start and ``b`` before
the demonstrations. The target then stands at t + a, the question at q + a + b, and their distance
grows by b. Crossing a with a + b lets the three residues tell apart; only an effect that follows
the target's is phase. In the tail control a stays 0 and b sweeps two cycles: nothing but the
question, and what lies between, moves.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.probes.content import design_key, digest, filler
from kvphase.stats.paired import confirm as judged
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvphase.probes.needle import NeedlePlan
    from kvphase.stats.confirmed import Confirmation
    from kvphase.types import Answers, Ask, Flow

QUESTIONS = 96
"""Questions asked on each prefill of a content at most."""
FEWEST, MOST = 2, 12
"""Contents."""
SURE = 4.5
"""Standard errors by which a gap of the size expected is to stand out."""
_DRAWS = 64


@dataclass(frozen=True, slots=True)
class ConfirmDesign:
    """What is shifted, by how much, and how often."""

    period: int
    contents: int
    questions: int
    """On each prefill."""
    expected_pp: float | None = None
    """The gap that is to be confirmed, in percentage points."""

    @property
    def prefills(self) -> int:
        """Of the whole confirmation, tail control included."""
        return 4 * self.period * self.contents

    def as_json(self) -> dict[str, Any]:
        """The fields, for the manifest."""
        return asdict(self)


def extra_tokens(period: int) -> int:
    """Tokens by which a shifted prompt is longer than its content at most."""
    return 3 * period


def contents_for(period: int, questions: int, mean: float, gap_pp: float) -> int:
    """Contents with which a gap of this size stands out by `SURE` standard errors.

    One residue of ``period`` against all others: its standard error is about
    sqrt(period m (1 - m) / n) with n answers in all.

    Args:
        period: Of the finding.
        questions: On each of the 2 x period prefills of a content.
        mean: Accuracy.
        gap_pp: Percentage points.
    """
    gap = max(gap_pp, 1.0) / 100
    n = period * max(mean * (1 - mean), 0.05) * (SURE / gap) ** 2
    return min(MOST, max(FEWEST, math.ceil(n / (questions * 2 * period))))


@dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """All prompts of a confirmation; deterministic in design and seed."""

    base: NeedlePlan
    """The contents, unshifted: one context each, of a seed that the screen did not use."""
    design: ConfirmDesign

    @property
    def questions(self) -> int:
        """Every ask."""
        return self.design.prefills * min(self.design.questions, self.base.design.asked)

    def batches(self) -> Iterator[list[Ask]]:
        """The asks of each prefill: the shifts of a content, then its tail control."""
        key = design_key(
            json.dumps(
                [
                    "confirm",
                    self.design.as_json(),
                    self.base.design.as_json(),
                    self.base.seed,
                    self.base.vocab.digest,
                    self.base.template.digest,
                ],
                sort_keys=True,
            )
        )
        ordinal = 0
        for layout in self.base.layouts:
            whole = self.base.screen(layout, key, 0)
            rng = np.random.default_rng([self.base.seed, layout.context, 4])
            drawn = rng.permutation(len(whole))[: self.design.questions].tolist()
            shifts = [(Arm.SHIFT, a, b) for a, b in crossed(self.design.period, rng)]
            tails = [(Arm.TAIL, 0, b) for b in range(2 * self.design.period)]
            for number, (arm, a, b) in enumerate([*shifts, *tails]):
                order = rng.permutation(len(drawn)).tolist()
                asks = [whole[drawn[i]] for i in order]
                yield self._shifted(asks, layout.end, a, b, arm, key, ordinal, number)
                ordinal += len(asks)

    def _shifted(
        self,
        asks: list[Ask],
        end: int,
        a: int,
        b: int,
        arm: Arm,
        key: bytes,
        ordinal: int,
        number: int,
    ) -> list[Ask]:
        """The same questions with ``a`` filler tokens at the start and ``b`` before ``end``."""
        base, prefix = self.base, asks[0].prefix
        start = len(base.limits.bos) + len(base.template.head)
        rng = np.random.default_rng([base.seed, asks[0].context, 5, number])
        moved = (
            prefix[:start]
            + tuple(filler(rng, base.vocab, a))
            + prefix[start:end]
            + tuple(filler(rng, base.vocab, b))
            + prefix[end:]
        )
        return [
            replace(
                ask,
                id=digest(key, ordinal + i, arm),
                prefix=moved,
                target=ask.target + a,
                question=len(moved),
                arm=arm,
                pad=a,
            )
            for i, ask in enumerate(asks)
        ]

    def prompts(self) -> list[tuple[int, ...]]:
        """Prompts whose tokenisation proves that of all: one a prefill."""
        return [batch[0].prompt for batch in self.batches()]

    def judged(self, answers: Answers) -> Confirmation:
        """What the answers say."""
        return judged(
            answers,
            self.design.period,
            expected_pp=self.design.expected_pp,
            seed=self.base.seed,
        )


def confirm(plan: ConfirmPlan) -> Flow[Confirmation]:
    """Ask every question of ``plan``, one prefill after the other, and judge.

    Yields:
        The asks of one prefill.

    Returns:
        Which position the effect follows.
    """
    answers = None
    for batch in plan.batches():
        got = yield batch
        answers = got if answers is None else answers.join(got)
    if answers is None:
        raise AssertionError("a confirmation has at least two contents")
    return plan.judged(answers)


def crossed(period: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Head and tail pads of a content's ``2 * period`` prefills.

    The head pad a runs over two full cycles. The question's shift s = a + b (less two cycles, so
    that b is never negative) takes each residue once in either cycle, in an order drawn so that
    neither s nor the distance s - a can be told from a.

    Returns:
        (a, b) of each prefill, in random order of asking.
    """
    best: tuple[int, list[int]] | None = None
    for _ in range(_DRAWS):
        first = rng.permutation(period)
        # The second cycle differs from the first at every residue of a.
        second = (first + int(rng.integers(1, period))) % period
        shifts = np.concatenate([first, second])
        counts = np.bincount((shifts - np.arange(2 * period)) % period, minlength=period)
        uneven = int(np.square(counts - 2).sum())
        if best is None or uneven < best[0]:
            best = (uneven, shifts.tolist())
    if best is None:
        raise AssertionError("at least one order is drawn")
    pads = [(a, 2 * period + s - a) for a, s in enumerate(best[1])]
    return [pads[i] for i in rng.permutation(2 * period).tolist()]
