"""A user's own prompts at several shifts: what to ask, and what the answers say.

Filler before the marked span (or before everything) moves the rest by one token at a time. Eight
shifts are asked first; where they look at all as if they repeated, eight more decide. Where those
find a period, the same filler goes behind the marked span instead: then only the question moves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kvphase.probes.content import design_key, digest
from kvphase.probes.shift_columns import FEW
from kvphase.probes.shifted import GO_ON, judged
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from kvphase.types import Answers, Flow

BASE = 8
"""Filler tokens at shift 0: a multiple of the usual periods, so that shift 0 has the phase of the
prompt as it is."""
MANY = 2 * FEW
"""Shifts at most: `FEW` are two cycles of period 4, these four."""
PHASES = 4
"""Shifts at which a moved span is asked."""
Measure = Literal["score", "right", "groups"]
Place = Literal["head", "tail"]


@dataclass(frozen=True, slots=True)
class Placed:
    """One prompt as the target's tokenizer reads it."""

    ids: tuple[int, ...]
    pad: int
    """Filler tokens in it."""
    target: int
    """Index of the marked span's first token, or of the first token that moves."""
    question: int
    """Index of the first token behind the marked span that may move alone; the prompt's length
    where there is none."""
    shared: int
    """Leading tokens that all shifts have in common."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One prompt with one filler at every shift."""

    family: str
    shifted: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with its question."""

    name: str
    expected: str | None
    """As the model would go on, leading space included; None without an expected answer."""
    against: str | None
    match: str
    generate: int
    plain: Placed
    """The prompt as it is, without filler."""
    sweeps: tuple[Sweep, ...]
    """Filler before the marked span, one sweep a filler."""
    tail: Sweep | None
    """Filler behind the marked span; None where nothing is marked or there is no place."""
    moved: dict[Place, Sweep] = field(default_factory=dict)
    scored: bool = False
    """The answer's log-probability is the measure, fixed before anything is asked."""
    notes: tuple[str, ...] = ()

    @property
    def measure(self) -> Measure:
        """What is tested: the right answer's score, right and wrong, or groups of answers."""
        if self.expected is None:
            return "groups"
        return "score" if self.scored else "right"


@dataclass(frozen=True, slots=True)
class ShiftPlan:
    """All prompts of a shift run; deterministic in the prompts, the tokenizer and the seed."""

    tasks: tuple[Task, ...]
    seed: int
    full: bool = False

    @property
    def questions(self) -> int:
        """Asked in any case."""
        return sum(len(self.plain()) + len(asks) for asks in (self.screen(0, self.first),))

    @property
    def first(self) -> int:
        """Shifts that are asked in any case."""
        return MANY if self.full else FEW

    def plain(self) -> list[Ask]:
        """Every prompt as it is, and at each place the marked span is moved to."""
        asks = [self._ask(i, task.plain, Arm.SHIFT, 0) for i, task in enumerate(self.tasks)]
        for i, task in enumerate(self.tasks):
            for number, place in enumerate(PLACES, 1):
                if place in task.moved:
                    asks += [
                        self._ask(i, placed, Arm.SHIFT, number)
                        for placed in task.moved[place].shifted
                    ]
        return asks

    def screen(self, start: int, end: int) -> list[Ask]:
        """Every prompt and filler at the shifts from ``start`` to ``end``, in random order."""
        asks = [
            self._ask(i, placed, Arm.SCREEN, number)
            for i, task in enumerate(self.tasks)
            for number, sweep in enumerate(task.sweeps)
            for placed in sweep.shifted[start:end]
        ]
        order = np.random.default_rng([self.seed, start, 9]).permutation(len(asks))
        # By task, so that a server keeps the prefix that a task's shifts share.
        return sorted((asks[i] for i in order), key=lambda ask: ask.item)

    def tail(self) -> list[Ask]:
        """The control: filler behind the marked span."""
        return [
            self._ask(i, placed, Arm.TAIL, 0)
            for i, task in enumerate(self.tasks)
            if task.tail is not None
            for placed in task.tail.shifted
        ]

    def cold(self) -> list[Ask]:
        """The first shift of the first prompt once more without the cache, if it was used."""
        placed = self.tasks[0].sweeps[0].shifted[0]
        return [self._ask(0, placed, Arm.COLD, 0)] if placed.shared else []

    def _ask(self, item: int, placed: Placed, arm: Arm, block: int) -> Ask:
        task = self.tasks[item]
        expected = task.expected or ""
        candidates = (expected,) if task.against is None else (expected, task.against)
        spelled = [list(placed.ids), expected, candidates, task.match, task.generate, self.seed]
        key = design_key(json.dumps(spelled))
        return Ask(
            id=digest(key, (item * 8 + block) * 1024 + placed.pad, arm),
            prefix=placed.ids[: placed.shared],
            suffix=placed.ids[placed.shared :],
            target=placed.target,
            expected=expected,
            candidates=candidates,
            arm=arm,
            item=item,
            block=block,
            context=item,
            pad=placed.pad,
            generate=task.generate,
            question=placed.question,
        )

    def as_json(self) -> dict[str, Any]:
        """What the manifest keeps: enough to judge the answers without the prompts."""
        return {
            "full": self.full,
            "base": BASE,
            "seed": self.seed,
            "tasks": [
                {
                    "name": task.name,
                    "expected": task.expected,
                    "against": task.against,
                    "match": task.match,
                    "scored": task.scored,
                    "tokens": len(task.plain.ids),
                    "target": task.plain.target,
                    "marked": task.plain.question < len(task.plain.ids) or task.tail is not None,
                    "start": _start(task),
                    "shared": task.sweeps[0].shifted[0].shared,
                    "families": [sweep.family for sweep in task.sweeps],
                    "tail": task.tail is not None,
                    "moved": sorted(task.moved),
                    "notes": [_note(note) for note in task.notes],
                }
                for task in self.tasks
            ],
        }


PLACES: tuple[Place, ...] = ("head", "tail")


def _start(task: Task) -> int:
    """Index at which filler goes in."""
    placed, base = task.sweeps[0].shifted[0], task.plain.ids
    pairs = zip(placed.ids, base, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(base))


def _note(note: str) -> dict[str, Any]:
    key = getattr(note, "key", None)
    return {"text": str(note)} if key is None else {"key": key, "values": vars(note)["values"]}


def shift(plan: ShiftPlan) -> Flow[Answers]:
    """Ask the prompts as they are and at eight shifts, then whatever these call for.

    Yields:
        The prompts as they are; the first shifts; perhaps the other eight; perhaps the control.

    Returns:
        All answers.
    """
    described = plan.as_json()
    answers = yield plan.plain()
    answers = answers.join((yield plan.screen(0, plan.first)))
    if cold := plan.cold():
        answers = answers.join((yield cold))
    found = judged(described, answers)
    if not plan.full and found.p_value is not None and found.p_value <= GO_ON:
        answers = answers.join((yield plan.screen(FEW, MANY)))
        found = judged(described, answers)
    control = plan.tail()
    if control and (plan.full or found.period is not None):
        answers = answers.join((yield control))
    return answers


__all__ = [
    "BASE",
    "FEW",
    "GO_ON",
    "MANY",
    "PHASES",
    "PLACES",
    "Measure",
    "Place",
    "Placed",
    "ShiftPlan",
    "Sweep",
    "Task",
    "shift",
]
