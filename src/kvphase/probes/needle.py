"""The needle probe: many key-value records in one context, each asked for by its key.

One prefill answers questions about targets at every residue: the records, the filler between them
and a few demonstrations form a prefix that all questions of a context share; a question adds its
key, a separator and (in chat) the template's tail.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.errors import UsageError
from kvphase.probes.design import Balance, Layout, NeedleDesign, balance, fit, lay_out
from kvphase.stats import measure
from kvphase.types import Arm, Ask, Template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvphase.types import Flow, Limits, Verdict, Vocab, Word

BALANCE_MEAN = 0.2
"""Largest difference of mean depth between a residue and all, in standard deviations of depth.
A single context of 24 records reaches about .15, 48 records .05, several contexts less."""
BALANCE_VARIANCE = 0.4
"""Largest relative difference of depth variance between a residue and all."""
CHAT_TOKENS = 8
"""Answer tokens in chat, where a word without its leading space may be several tokens."""


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

    @property
    def questions(self) -> int:
        """Every ask of the run: screen, repeats and cold ones."""
        return self.design.screen + sum(map(sum, self._shares()))

    def _shares(self) -> tuple[list[int], list[int]]:
        """Repeats and cold asks of each prefill: spread evenly, no more than it has questions."""
        n, most = len(self.layouts), self.design.asked
        repeats, cold = (
            [min(most, (i + 1) * total // n - i * total // n) for i in range(n)]
            for total in (self.design.repeats, self.design.cold)
        )
        return repeats, cold

    def batches(self) -> Iterator[list[Ask]]:
        """The asks of each prefill: screen in random order, then repeats, cold ones last.

        Cold asks come last because they may push the shared prefix out of a server's only slot.
        """
        key = _digest_key(self)
        ordinal = 0
        for layout, repeats, cold in zip(self.layouts, *self._shares(), strict=True):
            screen = self._screen(layout, key, ordinal)
            ordinal += len(screen)
            rng = np.random.default_rng([self.seed, layout.context, 2, layout.pad])
            chosen = [rng.permutation(len(screen))[:k].tolist() for k in (repeats, cold)]
            batch = screen.copy()
            for arm, picks in zip((Arm.REPEAT, Arm.COLD), chosen, strict=True):
                for pick in picks:
                    batch.append(_again(screen[pick], arm, key, ordinal))
                    ordinal += 1
            yield batch

    def prompts(self) -> list[tuple[int, ...]]:
        """Prompts whose tokenisation proves that of all: one a prefill, and one for each key.

        The latter are short: the start, one record, the question.
        """
        whole = [batch[0].prompt for batch in self.batches()]
        start = self.limits.bos + self.template.head
        v = self.vocab
        first = (v.phrases[0][0].id, *_record(v, v.keys[0], v.values[0]))
        short = [(*start, *first, word.id, v.separator.id, *self.template.tail) for word in v.keys]
        return whole + short

    def _screen(self, layout: Layout, key: bytes, ordinal: int) -> list[Ask]:
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
                    id=_digest(key, ordinal + len(asks), Arm.SCREEN),
                    prefix=prefix,
                    suffix=(word.id, self.vocab.separator.id, *self.template.tail),
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

    def _content(self, layout: Layout) -> _Content:
        """Drawn from (seed, context) alone, so that every pad of a content has the same words."""
        rng = np.random.default_rng([self.seed, layout.context, 1])
        total = len(layout.starts)
        keys = rng.permutation(len(self.vocab.keys))[:total]
        values = _spread(rng, len(self.vocab.values), total)
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
            ids += _filler(rng, v, start - len(ids))
            ids += _record(v, key, value)
        ids += _filler(rng, v, layout.end - len(ids))
        for record in layout.demonstrated:
            ids += _record(v, content.keys[record], content.values[record])
        expected = self.design.context_tokens - len(self.template.tail) - 2
        if len(ids) != expected:
            raise AssertionError(f"a prefix of {len(ids)} tokens should have {expected}")
        return tuple(ids)


def plan_needle(
    vocab: Vocab,
    limits: Limits,
    design: NeedleDesign,
    seed: int,
    template: Template | None = None,
) -> NeedlePlan:
    """Positions of all prompts of a run, refused if they do not fit or are not balanced.

    Raises:
        UsageError: the design does not fit the context, the tokenizer has too few words, or depth
            is not the same in every residue.
    """
    template = template or Template()
    start, tail = len(limits.bos) + len(template.head), len(template.tail)
    fit(design, start, tail, limits.context_tokens)
    total = design.records + design.demonstrations
    if total > len(vocab.keys):
        raise UsageError(
            f"{total} records need {total} one-token words; this tokenizer has {len(vocab.keys)}"
        )
    layouts = tuple(lay_out(design, seed, start, tail))
    found = balance(layouts, design)
    if found.worst_mean > BALANCE_MEAN or found.worst_variance > BALANCE_VARIANCE:
        raise UsageError(
            f"depth is not balanced over the {design.modulus} residues with {design.records} "
            f"records and {design.contexts} contexts; use more of either"
        )
    return NeedlePlan(vocab, limits, design, seed, template, layouts, found)


def needle(plan: NeedlePlan) -> Flow[Verdict]:
    """Ask every question of ``plan``, one prefill after the other, and measure.

    Yields:
        The asks of one prefill; receives their answers.

    Returns:
        The verdict over all answers.
    """
    answers = None
    for batch in plan.batches():
        got = yield batch
        answers = got if answers is None else answers.join(got)
    if answers is None:
        raise AssertionError("a design has at least one prefill")
    return measure(answers, kind=plan.design.kind, modulus=plan.design.modulus, seed=plan.seed)


def _record(vocab: Vocab, key: Word, value: Word) -> list[int]:
    return [key.id, vocab.separator.id, value.id, vocab.terminator.id]


def _filler(rng: np.random.Generator, vocab: Vocab, length: int) -> list[int]:
    """``length`` filler ids: phrases in their natural order, entered and left anywhere."""
    ids: list[int] = []
    while len(ids) < length:
        phrase = vocab.phrases[int(rng.integers(len(vocab.phrases)))]
        first = 0 if ids else int(rng.integers(len(phrase)))
        ids += [word.id for word in phrase[first:]]
    return ids[: max(0, length)]


def _spread(rng: np.random.Generator, available: int, total: int) -> list[int]:
    """``total`` indices below ``available``, none used again before all were used."""
    rounds = -(-total // available)
    drawn = [int(i) for _ in range(rounds) for i in rng.permutation(available)]
    return drawn[:total]


def _digest_key(plan: NeedlePlan) -> bytes:
    text = json.dumps(
        [plan.design.as_json(), plan.seed, plan.vocab.digest, plan.template.digest], sort_keys=True
    )
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def _digest(key: bytes, ordinal: int, arm: Arm) -> str:
    return hashlib.blake2b(f"{ordinal}|{arm}".encode(), digest_size=10, key=key).hexdigest()


def _again(ask: Ask, arm: Arm, key: bytes, ordinal: int) -> Ask:
    return replace(ask, id=_digest(key, ordinal, arm), arm=arm)
