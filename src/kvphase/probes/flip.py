"""The completion flip: short prompts whose next token is known, shifted one token at a time.

Filler before everything moves fact and question together, as a docstring that grows does. Where
the answers change with a period, the same prompts are asked once more with filler added between
fact and question: then only the question moves, and an effect that stays is not the fact's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.catalogue import message
from kvphase.probes.content import design_key, digest, filler
from kvphase.stats import measure
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Answers, Flow, Verdict, Vocab

SHIFTS = 8
"""Shifts of each prompt: two full cycles of period 4."""
HEAD = 8
"""Filler tokens before a prompt at shift 0."""
MARGIN = 16
"""Filler tokens between fact and question beyond the local window."""
FEWEST = 4
"""Written prompts that must survive the tokenizer; else lookups in its own words are asked."""
RECORDS, SHOWN = 24, 4
"""Records and demonstrations of a lookup."""
FOLLOWS_QUESTION = 0.05
"""P value of the control at which the fact's position is no longer the explanation."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One prompt as text: a fact, filler, a question."""

    name: str
    kind: str
    head: str
    """Text before everything, ``{filler}`` in it."""
    fact: str
    """With ``|`` before the target."""
    middle: str
    """Between fact and question, ``{filler}`` in it."""
    question: str
    answers: tuple[tuple[str, str], ...]
    """(right, tempting wrong) next tokens, in order of preference."""

    def text(self, before: str, between: str) -> str:
        """The whole prompt with these fillers."""
        head = self.head.replace("{filler}", before)
        middle = self.middle.replace("{filler}", between)
        return head + self.fact.replace("|", "", 1) + middle + self.question

    def start(self, before: str) -> str:
        """The prompt up to its target."""
        return self.head.replace("{filler}", before) + self.fact.partition("|")[0]


@dataclass(frozen=True, slots=True)
class Placed:
    """A passage at one shift, as the model's own tokenizer reads it."""

    ids: tuple[int, ...]
    target: int
    question: int


@dataclass(frozen=True, slots=True)
class FlipPrompt:
    """A passage at every shift that is asked; every shift is one token longer than the last."""

    name: str
    kind: str
    right: str
    wrong: str
    shifted: tuple[Placed, ...]
    """Filler added before everything."""
    tail: tuple[Placed, ...]
    """Filler added between fact and question."""


@dataclass(frozen=True, slots=True)
class FlipPlan:
    """All prompts of the flip."""

    prompts: tuple[FlipPrompt, ...]
    seed: int
    own_words: bool = False
    """Lookups in the tokenizer's own words took the place of the written prompts."""

    @property
    def questions(self) -> int:
        """Asked in any case; as many again if something is found."""
        return SHIFTS * len(self.prompts)

    @property
    def tokens(self) -> int:
        """Of all prompts that are asked in any case."""
        return sum(len(placed.ids) for prompt in self.prompts for placed in prompt.shifted)

    def cut(self, count: int) -> FlipPlan:
        """The first ``count`` prompts; kinds alternate, so that a few are of several kinds."""
        kinds: dict[str, list[FlipPrompt]] = {}
        for prompt in self.prompts:
            kinds.setdefault(prompt.kind, []).append(prompt)
        longest = max(map(len, kinds.values()))
        mixed = [group[i] for i in range(longest) for group in kinds.values() if i < len(group)]
        return replace(self, prompts=tuple(mixed[:count]))

    def named(self, names: Sequence[str]) -> FlipPlan:
        """Only the prompts of these names, in their order."""
        by_name = {prompt.name: prompt for prompt in self.prompts}
        return replace(self, prompts=tuple(by_name[name] for name in names if name in by_name))

    def as_json(self) -> dict[str, Any]:
        """What the manifest keeps."""
        return {
            "kind": "flip",
            "prompts": [prompt.name for prompt in self.prompts],
            "own_words": self.own_words,
            "modulus": SHIFTS,
        }

    def asks(self, arm: Arm) -> list[Ask]:
        """Every prompt at every shift, in random order."""
        key = design_key(json.dumps([[list(p.shifted[0].ids) for p in self.prompts], self.seed]))
        asks: list[Ask] = []
        for context, prompt in enumerate(self.prompts):
            places = prompt.tail if arm is Arm.TAIL else prompt.shifted
            for pad, placed in enumerate(places):
                asks.append(
                    Ask(
                        id=digest(key, len(asks), arm),
                        prefix=(),
                        suffix=placed.ids,
                        target=placed.target,
                        expected=prompt.right,
                        candidates=(prompt.right, prompt.wrong),
                        arm=arm,
                        item=context,
                        block=0,
                        context=context,
                        pad=pad,
                        question=placed.question,
                    )
                )
        order = np.random.default_rng([self.seed, 6]).permutation(len(asks))
        return [asks[i] for i in order]


def flip(plan: FlipPlan) -> Flow[Verdict]:
    """Ask every prompt at every shift; if the answers have a period, the control as well.

    Yields:
        All prompts at all shifts, then perhaps the control.

    Returns:
        The verdict.
    """
    answers = yield plan.asks(Arm.SCREEN)
    if measured(answers, plan.seed).period is not None:
        answers = answers.join((yield plan.asks(Arm.TAIL)))
    return judged(answers, plan.seed)


def measured(answers: Answers, seed: int) -> Verdict:
    """The verdict over the shifted prompts alone: one unit a prompt and shift.

    The flip's few prompts are no sample from which a gap could be estimated: it is given raw.
    """
    found = measure(answers, kind="prefix", modulus=SHIFTS, seed=seed)
    gap = replace(found.gap, crossfit_pp=None, ci95=None, over=None)
    settle = found.would_settle and message("flip.settle")
    return replace(found, gap=gap, would_settle=settle)


def judged(answers: Answers, seed: int) -> Verdict:
    """The verdict, in the light of the control where there is one."""
    found = measured(answers, seed)
    if found.verdict != "phase-sensitive":
        return found
    control = answers.where(answers.arm == Arm.TAIL.value)
    if not len(control):
        return replace(found, notes=(*found.notes, message("flip.no-control")))
    moved = replace(control, position=control.question, arm=np.full(len(control), Arm.SCREEN.value))
    p = measured(moved, seed).p_value
    if p is not None and p <= FOLLOWS_QUESTION:
        return replace(
            found,
            verdict="unreliable",
            reason=message("flip.follows-question", period=found.period, p=p),
            would_settle=message("flip.settle"),
            period=None,
        )
    return replace(found, reason=message("flip.follows-fact", period=found.period, p=found.p_value))


def passages() -> tuple[Passage, ...]:
    """The written prompts."""
    file = resources.files("kvphase.data") / "flips.json"
    return tuple(
        Passage(**{**prompt, "answers": tuple(map(tuple, prompt["answers"]))})
        for prompt in json.loads(file.read_text(encoding="utf-8"))["prompts"]
    )


def lookups(vocab: Vocab, seed: int, count: int = 8) -> tuple[Passage, ...]:
    """Prompts in a tokenizer's own one-token words: a record is looked up, another one tempts."""
    made = []
    for number in range(count):
        rng = np.random.default_rng([seed, number, 7])
        keys = [vocab.keys[i].text for i in rng.permutation(len(vocab.keys))[:RECORDS]]
        values = [vocab.values[i].text for i in rng.permutation(len(vocab.values))[:RECORDS]]
        separator, terminator = vocab.separator.text, vocab.terminator.text
        records = [f"{k}{separator}{v}{terminator}" for k, v in zip(keys, values, strict=True)]
        made.append(
            Passage(
                name=f"lookup-{number + 1}",
                kind="lookup",
                head="{filler}",
                fact="|" + "".join(records),
                middle="{filler}" + "".join(records[-SHOWN:]),
                question=f"{keys[0]}{separator}",
                answers=((values[0], values[1]),),
            )
        )
    return tuple(made)


def fillers(vocab: Vocab, length: int, seed: int) -> list[str]:
    """``length`` filler words, each a token with its leading space; a shorter cut is a prefix."""
    texts = {word.id: word.text for phrase in vocab.phrases for word in phrase}
    return [texts[i] for i in filler(np.random.default_rng([seed, 8]), vocab, length)]


def text_at(passage: Passage, words: Sequence[str], before: int, between: int) -> str:
    """The prompt with so many filler words before everything and between fact and question."""
    return passage.text("".join(words[:before]), "".join(words[:between]))
