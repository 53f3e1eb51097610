"""The needle probe: many key-value records in one context, each asked for by its key.

One prefill answers questions about targets at every residue: the records, the filler between them
and a few demonstrations form a prefix that all questions of a context share; a question adds its
key, a separator and (in chat) the template's tail.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.errors import UsageError
from kvphase.probes.content import again, design_key, digest, filler, record_ids, spread
from kvphase.probes.design import Balance, Layout, NeedleDesign, balance, fit, lay_out
from kvphase.stats import measure
from kvphase.stats.looks import looks_at
from kvphase.stats.measure import found_early
from kvphase.types import Arm, Ask, Template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvphase.types import Answers, Flow, Limits, Verdict, Vocab, Word

BALANCE_MEAN = 0.2
"""Largest difference of mean depth between a residue and all, in standard deviations of depth.
A single context of 24 records reaches about .15, 48 records .05, several contexts less."""
BALANCE_VARIANCE = 0.4
"""Largest relative difference of depth variance between a residue and all."""
CHAT_TOKENS = 8
"""Answer tokens in chat, where a word without its leading space may be several tokens."""
FLOOR, CEILING = 0.01, 0.995
"""Means at a look beyond which the rest is not asked: at most one answer in a hundred differs."""
FEWEST_AFTER = 8
"""Contexts asked after an early finding, where there are so many: level and gap come from them
alone, and a t interval over contexts needs eight."""


@dataclass(frozen=True, slots=True)
class _Content:
    """The words of one context: what stands at each record, and in which order it is asked."""

    keys: tuple[Word, ...]
    values: tuple[Word, ...]
    order: tuple[int, ...]
    """Positions in ``Layout.asked``, in asking order."""


@dataclass(frozen=True, slots=True)
class NeedlePlan:
    """All prompts of one needle run, composed on demand; deterministic in design and seed."""

    vocab: Vocab
    limits: Limits
    design: NeedleDesign
    seed: int
    template: Template
    layouts: tuple[Layout, ...]
    balance: Balance
    early: bool = False
    """Look at the answers before all are there, and stop where that is enough."""

    @property
    def questions(self) -> int:
        """Every ask if nothing ends the run early: screen, repeats, lone and cold ones."""
        return self.design.screen + sum(map(sum, self._shares()))

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of contexts after which the answers are tested; the last one is all."""
        early = self.early and self.design.kind == "insequence"
        return looks_at(self.design.contexts) if early else (self.design.contexts,)

    def stop_after(self, look: int) -> int:
        """Contexts to have asked in all when the look at ``look`` contexts found something."""
        return min(self.design.contexts, look + max(-(-self.looks[0] // 2), FEWEST_AFTER))

    def _shares(self) -> tuple[list[int], list[int], list[int]]:
        """Repeats, lone and cold asks of each prefill, no more than it has questions.

        They are spread evenly over what is asked even if the first look ends the run.
        """
        n = len(self.layouts)
        if len(self.looks) > 1:
            n = self.stop_after(self.looks[0])
        totals = (self.design.repeats, self.design.alone, self.design.cold)
        repeats, alone, cold = (self._spread_over(n, total) for total in totals)
        return repeats, alone, cold

    def _spread_over(self, n: int, total: int) -> list[int]:
        """``total`` asks over the first ``n`` prefills; the others get none."""
        most = self.design.asked
        shares = [min(most, (i + 1) * total // n - i * total // n) for i in range(n)]
        return shares + [0] * (len(self.layouts) - n)

    def batches(self) -> Iterator[list[Ask]]:
        """The asks of each prefill: screen in random order, repeats, lone ones, cold ones last.

        Cold asks come last because they may push the shared prefix out of a server's only slot.
        """
        key = _digest_key(self)
        ordinal = 0
        for layout, *counts in zip(self.layouts, *self._shares(), strict=True):
            screen = self.screen(layout, key, ordinal)
            ordinal += len(screen)
            rng = np.random.default_rng([self.seed, layout.context, 2, layout.pad])
            chosen = [rng.permutation(len(screen))[:k].tolist() for k in counts]
            batch = screen.copy()
            for arm, picks in zip((Arm.REPEAT, Arm.ALONE, Arm.COLD), chosen, strict=True):
                for pick in picks:
                    batch.append(again(screen[pick], arm, key, ordinal))
                    ordinal += 1
            yield batch

    def measured(self, answers: Answers) -> Verdict:
        """The verdict over ``answers``, looks included."""
        design = self.design
        return measure(
            answers, kind=design.kind, modulus=design.modulus, seed=self.seed, looks=self.looks
        )

    def prompts(self) -> list[tuple[int, ...]]:
        """Prompts whose tokenisation proves that of all: one a prefill, and one for each key.

        The latter are short: the start, one record, the question.
        """
        whole = [batch[0].prompt for batch in self.batches()]
        start = self.limits.bos + self.template.head
        v = self.vocab
        first = (v.phrases[0][0].id, *self._record(v.keys[0], v.values[0]))
        short = [(*start, *first, *self._question(word)) for word in v.keys]
        return whole + short

    def screen(self, layout: Layout, key: bytes, ordinal: int) -> list[Ask]:
        """The questions on one prefill, in asking order; ``ordinal`` numbers the first."""
        content = self._content(layout)
        prefix = self._prefix(layout, content)
        asks: list[Ask] = []
        for place in content.order:
            record = layout.asked[place]
            word, value = content.keys[record], content.values[record]
            target = layout.starts[record]
            if prefix[target] != word.id:
                raise AssertionError(f"the key of record {record} is not at token {target}")
            asks.append(
                Ask(
                    id=digest(key, ordinal + len(asks), Arm.SCREEN),
                    prefix=prefix,
                    suffix=self._question(word),
                    target=target,
                    expected=value.text,
                    candidates=(value.text,),
                    arm=Arm.SCREEN,
                    item=layout.context * len(layout.starts) + record,
                    block=layout.blocks[place],
                    context=layout.context,
                    pad=layout.pad,
                    generate=CHAT_TOKENS if self.template.tail else 1,
                    question=len(prefix),
                )
            )
        return asks

    def _record(self, key: Word, value: Word) -> list[int]:
        return record_ids(self.vocab, key, value, dense=self.design.dense)

    def _question(self, key: Word) -> tuple[int, ...]:
        ids = (key.id,) if self.design.dense else (key.id, self.vocab.separator.id)
        return (*ids, *self.template.tail)

    def _content(self, layout: Layout) -> _Content:
        """Drawn from (seed, context) alone, so that every pad of a content has the same words."""
        rng = np.random.default_rng([self.seed, layout.context, 1])
        total = len(layout.starts)
        keys = rng.permutation(len(self.vocab.keys))[:total]
        values = spread(rng, len(self.vocab.values), total)
        return _Content(
            keys=tuple(self.vocab.keys[i] for i in keys),
            values=tuple(self.vocab.values[i] for i in values),
            order=tuple(rng.permutation(len(layout.asked)).tolist()),
        )

    def _prefix(self, layout: Layout, content: _Content) -> tuple[int, ...]:
        rng = np.random.default_rng([self.seed, layout.context, 3, layout.pad])
        v = self.vocab
        ids = list(self.limits.bos + self.template.head)
        for start, key, value in zip(layout.starts, content.keys, content.values, strict=True):
            ids += filler(rng, v, start - len(ids))
            ids += self._record(key, value)
        ids += filler(rng, v, layout.end - len(ids))
        for record in layout.demonstrated:
            ids += self._record(content.keys[record], content.values[record])
        expected = self.design.context_tokens - len(self.template.tail) - self.design.question
        if len(ids) != expected:
            raise AssertionError(f"a prefix of {len(ids)} tokens should have {expected}")
        return tuple(ids)


def plan_needle(
    vocab: Vocab,
    limits: Limits,
    design: NeedleDesign,
    seed: int,
    template: Template | None = None,
    *,
    early: bool = False,
    balanced: bool = True,
) -> NeedlePlan:
    """Positions of all prompts of a run, refused if they do not fit or are not balanced.

    Where depth need not be balanced over residues (a pilot's mean, contents that are paired with
    themselves), ``balanced`` is false and it may be as it comes.

    Raises:
        UsageError: the design does not fit the context, the tokenizer has too few words, or depth
            is not the same in every residue.
    """
    template = template or Template()
    must_fit(vocab, limits, design, template)
    start, tail = len(limits.bos) + len(template.head), len(template.tail)
    layouts = tuple(lay_out(design, seed, start, tail))
    found = balance(layouts, design)
    uneven = found.worst_mean > BALANCE_MEAN or found.worst_variance > BALANCE_VARIANCE
    if balanced and uneven:
        raise UsageError(
            f"depth is not balanced over the {design.modulus} residues with {design.records} "
            f"records and {design.contexts} contexts; use more of either"
        )
    return NeedlePlan(vocab, limits, design, seed, template, layouts, found, early)


def must_fit(vocab: Vocab, limits: Limits, design: NeedleDesign, template: Template) -> None:
    """Refuse a design that this context or this tokenizer does not hold.

    Raises:
        UsageError: with the largest that would fit, or the rule that is broken.
    """
    fit(design, len(limits.bos) + len(template.head), len(template.tail), limits.context_tokens)
    total = design.records + design.demonstrations
    if total > len(vocab.keys):
        raise UsageError(
            f"{total} records need {total} one-token words; this tokenizer has {len(vocab.keys)}"
        )


def needle(plan: NeedlePlan) -> Flow[Verdict]:
    """Ask the questions of ``plan``, one prefill after the other, and measure.

    Yields:
        The asks of one prefill; receives their answers.

    Returns:
        The verdict over all answers.
    """
    answers, last, stopping = None, plan.design.contexts, False
    for batch in plan.batches():
        if batch[0].context >= last:
            break
        got = yield batch
        answers = got if answers is None else answers.join(got)
        asked = batch[0].context + 1
        if not stopping and asked in plan.looks[:-1]:
            if _hopeless(answers):
                break
            if _found(plan, answers):
                last, stopping = plan.stop_after(asked), True
    if answers is None:
        raise AssertionError("a design has at least one prefill")
    return plan.measured(answers)


def _hopeless(answers: Answers) -> bool:
    """Whether next to all answers are the same: more of them would show no phase either."""
    done = answers.where((answers.arm == Arm.SCREEN.value) & (answers.correct >= 0))
    return not len(done) or not FLOOR <= float(done.correct.mean()) <= CEILING


def _found(plan: NeedlePlan, answers: Answers) -> bool:
    """Whether the look at these answers found something that repeats."""
    asked = int(answers.context.max()) + 1
    design = plan.design
    looks = [look for look in plan.looks if look <= asked]
    return found_early(answers, looks, kind=design.kind, modulus=design.modulus, seed=plan.seed)


def _digest_key(plan: NeedlePlan) -> bytes:
    parts = [plan.design.as_json(), plan.seed, plan.vocab.digest, plan.template.digest]
    return design_key(json.dumps(parts, sort_keys=True))
