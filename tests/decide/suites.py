"""Suites of invented tasks as ``compare`` and ``gate`` read them from shift runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from decide.worlds import length, run
from kvphase.probes.shifted import ALPHA, GO_ON
from kvphase.runs.evidence import Suite
from kvphase.stats import pads
from kvphase.types import Answers, Arm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.runs.evidence import Evidence

BASE = 8


@dataclass(frozen=True, slots=True)
class World:
    """Where tasks are right, before luck."""

    ease: tuple[float, float]
    """Accuracies lie evenly between these, a task's own."""
    profile: tuple[float, ...]
    """Added at (position + the task's own offset) modulo its length; mean 0."""
    own: bool = False
    """Tasks rest on a token some way behind the marked one, each on another."""
    sticky: float = 0.0
    """Chance that an answer is that of the shift before: neighbours hardly differ."""

    @property
    def mean(self) -> float:
        """Accuracy over all tasks there could be."""
        return sum(self.ease) / 2

    @property
    def worst(self) -> float:
        """Of the residues of the position, over all tasks there could be."""
        return self.mean + (0.0 if self.own else min(self.profile))

    @property
    def own_worst(self) -> float:
        """Of each task's own residues, over all tasks."""
        return self.mean + min(self.profile)

    @property
    def own_gap_pp(self) -> float:
        """Best minus worst of a task's own residues, percentage points."""
        return 100 * (max(self.profile) - min(self.profile))


def suite(
    world: World,
    seed: int,
    *,
    tasks: int = 24,
    questions: int = 0,
    shifts: int | None = None,
    name: str = "a.kvphase",
    **changed: Any,  # noqa: ANN401 - fields of Length
) -> Evidence:
    """A shift run of an invented model: ``questions`` draws the tasks, ``seed`` the answers.

    Eight shifts, and eight more where they look periodic, as ``kvphase shift`` decides.
    """
    drawn = np.random.default_rng([31, questions])
    ease = drawn.uniform(*world.ease, tasks)
    home = drawn.integers(128, size=tasks)
    offset = drawn.integers(8, size=tasks) if world.own else np.zeros(tasks, np.int64)
    right = _answers(world, ease, home + offset, np.random.default_rng([32, questions, seed]))
    period = None
    if shifts is None:
        rng = np.random.default_rng([33, questions, seed])
        first = pads.swept([one[:8, None] for one in right], rng)
        shifts = 16 if first.p_value is not None and first.p_value <= GO_ON else 8
        whole = pads.swept([one[:, None] for one in right], rng) if shifts == 16 else first
        if shifts == 16 and whole.p_value is not None and whole.p_value <= ALPHA:
            period = whole.period if whole.replicates else None
    answers = _rows(right[:, :shifts], home)
    cycle = (answers.pad - BASE) // 8
    rows = zip(answers.item, answers.position % 8, cycle, strict=True)
    content = np.array([f"{item}:{residue}:{at}" for item, residue, at in rows], np.str_)
    one = length(
        answers,
        content,
        **{"rung": "suite", "kind": "suite", "design": {}, "period": period, **changed},
    )
    wrong = right[:, :shifts].mean(axis=1)
    return run(
        one,
        name=name,
        headline="suite",
        chat=None,
        suite=Suite("f0", tasks, 0, int(((wrong > 0) & (wrong < 1)).sum()), BASE),
    )


def _answers(
    world: World, ease: NDArray[np.float64], at: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Right answers, shape (tasks, 16)."""
    shift = np.arange(16)
    profile = np.asarray(world.profile)
    chance = ease[:, None] + profile[(at[:, None] + BASE + shift) % len(profile)]
    luck = rng.random(chance.shape)
    keep = rng.random(chance.shape) < world.sticky
    for k in range(1, 16):
        luck[:, k] = np.where(keep[:, k], luck[:, k - 1], luck[:, k])
    right: NDArray[np.float64] = (luck < chance).astype(np.float64)
    return right


def _rows(right: NDArray[np.float64], home: NDArray[np.int64]) -> Answers:
    tasks, shifts = right.shape
    item = np.repeat(np.arange(tasks), shifts)
    pad = np.tile(BASE + np.arange(shifts), tasks)
    n = len(item)
    none = np.full(n, np.nan)
    return Answers(
        position=home[item] + pad,
        correct=right.reshape(-1).astype(np.int8),
        logprob=none,
        item=item,
        block=np.zeros(n, np.int64),
        context=item,
        pad=pad,
        arm=np.full(n, Arm.SCREEN.value),
        text=np.full(n, ""),
        margin=none,
        question=np.full(n, -1),
        against=none,
    )
