"""A file's prompts asked as they stand, and moved through the residues: what to ask, what it says.

Every prompt is asked at two full cycles of the curve's modulus. Each fact is compared with itself
at other positions, so that neither how hard it is nor where its file put it counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.catalogue import message
from kvphase.probes.content import design_key, digest
from kvphase.stats import measure
from kvphase.stats.gap import crossfit
from kvphase.stats.measure import CONTEXTS_FOR_INTERVAL
from kvphase.stats.series import cells
from kvphase.stats.together import Shifted, p_together
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.catalogue import Message
    from kvphase.probes.formats import Fact
    from kvphase.probes.shift import Placed
    from kvphase.types import Answers, Gap, Verdict

BLOCK = 24
"""Neighbours by position whose answers may be exchanged where positions are trusted."""
COLD = 8
"""Prompts that are asked once more without the cache, where they share a prefix at all."""
FOLLOWS_QUESTION = 0.05
"""P value of the control at which the fact's position is no longer the explanation."""
ASIS, SHIFTED = "asis", "shifted"


@dataclass(frozen=True, slots=True)
class PlacedFact:
    """A fact of a prompt and its position there."""

    fact: Fact
    target: int
    """Token index of its first token in the prompt without filler."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of the file as the target's tokenizer reads it."""

    line: int
    ids: tuple[int, ...]
    facts: tuple[PlacedFact, ...]
    generate: int
    shifted: tuple[Placed, ...] = ()
    """With filler before its facts; empty where it is only asked as it stands."""
    tail: tuple[Placed, ...] = ()
    """With filler behind its facts; empty where there is no place."""


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """All prompts of a stage; deterministic in the file, the tokenizer and the seed."""

    prompts: tuple[Prompt, ...]
    seed: int

    @property
    def rules(self) -> list[Fact]:
        """The facts in the order that ``Ask.item`` counts them in."""
        return [placed.fact for prompt in self.prompts for placed in prompt.facts]

    def asis(self) -> list[Ask]:
        """Every prompt as it stands, one ask a fact; blocks are neighbours by position."""
        asks = [
            self._ask(prompt, number, placed, prompt.ids, 0, Arm.SCREEN)
            for prompt, number, placed in self._facts()
        ]
        order = np.argsort([ask.target for ask in asks], kind="stable")
        blocks = np.empty(len(asks), dtype=np.int64)
        blocks[order] = np.arange(len(asks)) // BLOCK
        return [replace(ask, block=int(at)) for ask, at in zip(asks, blocks, strict=True)]

    def screen(self) -> list[Ask]:
        """Every prompt at every shift in random order, prompt by prompt; then some without cache.

        The facts of a prompt follow each other: one request answers all of them.
        """
        asks: list[Ask] = []
        for place, (prompt, facts) in enumerate(self._by_prompt()):
            rng = np.random.default_rng([self.seed, place, 11])
            for shift in rng.permutation(len(prompt.shifted)):
                asks += self._moved(prompt, facts, prompt.shifted[shift], Arm.SCREEN)
        return asks

    def cold(self) -> list[Ask]:
        """A few prompts once more without the cache, if it is used."""
        asks: list[Ask] = []
        for prompt, facts in list(self._by_prompt())[:COLD]:
            if prompt.shifted and prompt.shifted[0].shared:
                asks += self._moved(prompt, facts[:1], prompt.shifted[0], Arm.COLD)
        return asks

    def control(self) -> list[Ask]:
        """The control: filler behind the facts, so that only the question moves."""
        return [
            ask
            for prompt, facts in self._by_prompt()
            for placed in prompt.tail
            for ask in self._moved(prompt, facts, placed, Arm.TAIL)
        ]

    def _by_prompt(self) -> list[tuple[Prompt, list[tuple[int, PlacedFact]]]]:
        rows, number = [], 0
        for prompt in self.prompts:
            rows.append((prompt, list(enumerate(prompt.facts, number))))
            number += len(prompt.facts)
        return rows

    def _facts(self) -> list[tuple[Prompt, int, PlacedFact]]:
        return [(p, number, placed) for p, facts in self._by_prompt() for number, placed in facts]

    def _moved(
        self,
        prompt: Prompt,
        facts: Sequence[tuple[int, PlacedFact]],
        placed: Placed,
        arm: Arm,
    ) -> list[Ask]:
        pad = 0 if arm is Arm.TAIL else placed.pad
        return [
            replace(
                self._ask(prompt, number, fact, placed.ids, placed.pad, arm, placed.shared),
                target=fact.target + pad,
                question=placed.question,
            )
            for number, fact in facts
        ]

    def _ask(
        self,
        prompt: Prompt,
        number: int,
        placed: PlacedFact,
        ids: tuple[int, ...],
        pad: int,
        arm: Arm,
        shared: int = 0,
    ) -> Ask:
        fact = placed.fact
        expected = fact.answers[0]
        spelled = [list(ids), fact.answers, fact.rule, placed.target, prompt.generate, self.seed]
        return Ask(
            id=digest(design_key(json.dumps(spelled)), number * 1024 + pad, arm),
            prefix=ids[:shared],
            suffix=ids[shared:],
            target=placed.target,
            expected=expected,
            candidates=(expected,),
            arm=arm,
            item=number,
            block=0,
            context=number,
            pad=pad,
            generate=prompt.generate,
        )


def judged(design: dict[str, Any], answers: Answers, seed: int) -> Verdict:
    """The verdict over a file's answers.

    Args:
        design: Of the stage: ``kind`` (``asis`` or ``shifted``), ``modulus``, ``spread``, ``at``,
            ``facts``, and ``sizes``, the facts of each prompt.
        answers: Of the stage.
        seed: Of the permutations.
    """
    found = (
        _asis(design, answers, seed) if design["kind"] == ASIS else _shifted(design, answers, seed)
    )
    return replace(found, notes=(*_notes(design), *found.notes))


def measured(design: dict[str, Any], answers: Answers, seed: int) -> Verdict:
    """The verdict over the shifted prompts without their control.

    Facts of one prompt share its requests. Where there are such, a second test permutes whole
    requests (`kvphase.stats.together`), and the larger p value counts.
    """
    modulus, sizes = int(design["modulus"]), list(design["sizes"])
    found = measure(answers, kind="prefix", modulus=modulus, seed=seed)
    if max(sizes) < 2:
        return found
    gap = gap_over_prompts(found.gap, answers, sizes, modulus, found.period or modulus, seed)
    found = replace(found, gap=gap)
    if found.verdict != "phase-sensitive":
        return found
    p = _together(answers, sizes, modulus, np.random.default_rng([seed, 0x6473]))
    if p <= found.alpha:
        p = max(p, found.p_value or 0.0)
        told = {"period": found.period, "p": p, "gap": _spoken(gap)}
        return replace(found, p_value=p, reason=message("verdict.reason.phase-sensitive", **told))
    return replace(
        found,
        verdict="inconclusive",
        reason=message("dataset.reason-together", period=found.period, p=p),
        would_settle=message("dataset.settle-more"),
        period=None,
        p_value=p,
    )


def gap_over_prompts(
    gap: Gap, answers: Answers, sizes: Sequence[int], modulus: int, fold: int, seed: int
) -> Gap:
    """The gap with its interval over prompts: facts that share requests are not independent.

    Args:
        gap: As `measure` has it, over facts.
        answers: Of the stage.
        sizes: Facts of each prompt.
        modulus: Of the curve; with fewer than eight prompts the interval is over their cycles.
        fold: Residues among which the gap is sought.
        seed: Of the split.
    """
    done = answers.where((answers.arm == Arm.SCREEN.value) & (answers.correct >= 0))
    cluster = prompts_of(sizes)[done.context]
    count = len(np.unique(cluster))
    over = message("dataset.over-prompts")
    if count < CONTEXTS_FOR_INTERVAL:
        cluster = cells(cluster, done.pad // modulus)
        over = message("dataset.over-cycles", prompts=count)
    rng = np.random.default_rng([seed, 0x6770])
    right = done.correct.astype(np.float64)
    fitted = crossfit(right, done.position % fold, cluster, rng)
    if fitted is None:
        return replace(gap, crossfit_pp=None, ci95=None, over=None)
    return replace(gap, crossfit_pp=fitted.pp, ci95=fitted.ci95, over=over)


def prompts_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """The prompt of each fact (``Ask.context``), shape (facts,)."""
    return np.repeat(np.arange(len(sizes)), np.asarray(sizes, dtype=np.int64))


def _spoken(gap: Gap) -> str:
    """The gap for a sentence."""
    if gap.crossfit_pp is None or gap.ci95 is None:
        return message("verdict.gap.raw", pp=gap.raw_pp)
    low, high = gap.ci95
    return f"{gap.crossfit_pp:.1f} [{low:.1f}, {high:.1f}]"


def _together(
    answers: Answers, sizes: Sequence[int], modulus: int, rng: np.random.Generator
) -> float:
    """P value if whole requests are permuted; prompts that are not complete are left out."""
    done = answers.where((answers.arm == Arm.SCREEN.value) & (answers.correct >= 0))
    prompts: list[Shifted] = []
    first = 0
    for size in sizes:
        facts = [done.where(done.context == fact) for fact in range(first, first + size)]
        first += size
        if all(len(mine) == 2 * modulus for mine in facts):
            orders = [np.argsort(mine.pad) for mine in facts]
            right = [m.correct[o].astype(np.float64) for m, o in zip(facts, orders, strict=True)]
            start = np.array([int(mine.position.min()) for mine in facts], dtype=np.int64)
            prompts.append(Shifted(np.stack(right, axis=1), start))
    periods = [p for p in range(2, modulus + 1) if modulus % p == 0]
    return p_together(prompts, periods, rng)


def _asis(design: dict[str, Any], answers: Answers, seed: int) -> Verdict:
    """Positions as the file has them: one screen of all prompts together."""
    whole = replace(answers, context=np.zeros(len(answers), dtype=np.int64))
    found = measure(whole, kind="insequence", modulus=int(design["modulus"]), seed=seed)
    return replace(found, notes=(message("dataset.note-neighbours", block=BLOCK), *found.notes))


def _shifted(design: dict[str, Any], answers: Answers, seed: int) -> Verdict:
    """With the control, where it was asked."""
    found = measured(design, answers, seed)
    if found.verdict != "phase-sensitive":
        return found
    control = answers.where(answers.arm == Arm.TAIL.value)
    if not len(control):
        return replace(found, notes=(*found.notes, message("dataset.no-control")))
    moved = replace(
        control,
        position=control.question,
        arm=np.full(len(control), Arm.SCREEN.value),
    )
    other = measure(moved, kind="prefix", modulus=int(design["modulus"]), seed=seed)
    p = other.p_value
    if p is not None and p <= FOLLOWS_QUESTION and other.gap.raw_pp >= found.gap.raw_pp / 2:
        return replace(
            found,
            verdict="unreliable",
            reason=message("dataset.follows-question", period=found.period, p=p),
            would_settle=message("dataset.settle-question"),
            period=None,
        )
    told = message("dataset.follows-fact", n=other.n, p=1.0 if p is None else p)
    return replace(found, notes=(*found.notes, told))


def _notes(design: dict[str, Any]) -> list[Message]:
    """What the file's own positions are worth."""
    spread = str(design["spread"])
    if spread != "locked":
        return [message(f"dataset.note-{spread}", n=design["facts"])]
    modulus, residue, count = design["at"]
    values = {"modulus": modulus, "residue": residue, "count": count, "n": design["facts"]}
    return [message("dataset.note-locked", **values)]


__all__ = [
    "ASIS",
    "SHIFTED",
    "DatasetPlan",
    "PlacedFact",
    "Prompt",
    "gap_over_prompts",
    "judged",
    "measured",
    "prompts_of",
]
