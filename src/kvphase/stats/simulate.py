"""Answers of an invented model whose truth is known: to check the statistics and to plan runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.types import Answers, Arm

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 24
RECORD = 4
"""Tokens of one record."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the questions of a simulated run stand; every array has shape (n,)."""

    position: NDArray[np.int64]
    depth: NDArray[np.float64]
    """Position within its context, 0 to 1."""
    item: NDArray[np.int64]
    block: NDArray[np.int64]
    context: NDArray[np.int64]
    pad: NDArray[np.int64]
    order: NDArray[np.float64]
    """When the question was asked, 0 to 1."""
    before: NDArray[np.int64]
    """Filler tokens between the record before and this one."""
    after: NDArray[np.int64]
    """Filler tokens between this record and the next."""


Truth = Callable[[Layout, np.random.Generator], "NDArray[np.float64]"]
"""The probability of a right answer to each question, shape (n,)."""


def insequence(
    rng: np.random.Generator, *, contexts: int = 4, records: int = 312, modulus: int = 8
) -> Layout:
    """Records with random spacers of 0 to ``modulus`` - 1 tokens between them, all asked."""
    spacers = rng.integers(modulus, size=(contexts, records))
    start = rng.integers(128, size=(contexts, 1))
    position = start + np.cumsum(RECORD + spacers, axis=1)
    span = position[:, -1:] - start
    ordinal = np.broadcast_to(np.arange(records), position.shape)
    n = position.size
    return Layout(
        position=position.reshape(-1),
        depth=((position - start) / span).reshape(-1),
        item=ordinal.reshape(-1),
        block=(ordinal // BLOCK).reshape(-1),
        context=np.repeat(np.arange(contexts), records),
        pad=np.repeat(start, records),
        order=rng.permutation(n) / n,
        before=spacers.reshape(-1),
        after=np.roll(spacers, -1, axis=1).reshape(-1),
    )


def prefix(
    rng: np.random.Generator,
    *,
    contexts: int = 3,
    pads: int = 16,
    questions: int = 24,
    modulus: int = 8,
) -> Layout:
    """The same questions at every pad; all targets of a prefill share their residue."""
    home = rng.integers(128, size=contexts)
    item = np.arange(questions)
    position = (
        home[:, None, None]
        + np.arange(pads)[None, :, None]
        + modulus * rng.permutation(4 * questions)[:questions][None, None, :]
    )
    shape = position.shape
    return Layout(
        position=position.reshape(-1),
        depth=(position / position.max()).reshape(-1),
        item=np.broadcast_to(item, shape).reshape(-1),
        block=np.zeros(position.size, dtype=np.int64),
        context=np.repeat(np.arange(contexts), pads * questions),
        pad=np.broadcast_to(np.arange(pads)[None, :, None], shape).reshape(-1),
        order=np.arange(position.size) / position.size,
        before=np.zeros(position.size, dtype=np.int64),
        after=np.zeros(position.size, dtype=np.int64),
    )


def answer(layout: Layout, truth: Truth, rng: np.random.Generator) -> Answers:
    """Ask an invented model: independent answers with the probabilities of ``truth``."""
    chance = truth(layout, rng)
    n = len(layout.position)
    return Answers(
        position=layout.position,
        correct=(rng.random(n) < chance).astype(np.int8),
        logprob=np.log(np.clip(chance, 1e-9, 1.0)),
        item=layout.item,
        block=layout.block,
        context=layout.context,
        pad=layout.pad,
        arm=np.full(n, Arm.SCREEN.value),
        text=np.full(n, "?"),
        margin=np.full(n, np.nan),
        question=np.full(n, -1),
        against=np.full(n, np.nan),
    )


def periodic(mean: float, profile: list[float]) -> Truth:
    """Accuracy ``mean`` plus the profile's entry (fractions) at ``position mod len(profile)``."""

    def truth(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
        deviation = np.asarray(profile) - np.mean(profile)
        chance: NDArray[np.float64] = mean + deviation[layout.position % len(profile)]
        return chance

    return truth


def constant(mean: float) -> Truth:
    """The same accuracy everywhere."""
    return lambda layout, _: np.full(len(layout.position), mean)


def deep(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
    """Lost in the middle: .95 at the ends, .45 half-way."""
    chance: NDArray[np.float64] = 0.45 + 2.0 * np.square(layout.depth - 0.5)
    return chance


def by_item(layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
    """Some items are easy and some are hard, wherever they stand."""
    ability = rng.beta(0.8, 0.4, size=int(layout.item.max()) + 1)
    chance: NDArray[np.float64] = ability[layout.item]
    return chance


def by_context(layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
    """Contexts differ, and so do the prefills of one context."""
    names = layout.context * 1_000 + layout.pad
    _, prefill = np.unique(names, return_inverse=True)
    of_context = rng.uniform(0.4, 0.9, size=int(layout.context.max()) + 1)
    of_prefill = rng.normal(0.0, 0.08, size=int(prefill.max()) + 1)
    chance = of_context[layout.context] + of_prefill[prefill.reshape(-1)]
    clipped: NDArray[np.float64] = np.clip(chance, 0.01, 0.99)
    return clipped


def in_runs(layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
    """Neighbouring records of a context fail together: some forty tokens are forgotten at once."""
    stretch = layout.position // 40
    forgotten = rng.random((int(layout.context.max()) + 1, int(stretch.max()) + 1)) < 0.2
    return np.where(forgotten[layout.context, stretch], 0.3, 0.85)


def drifting(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
    """The server gets worse while it is asked, and longer pads cost a little."""
    chance: NDArray[np.float64] = 0.85 - 0.3 * layout.order - 0.004 * np.minimum(layout.pad, 40)
    return chance


def by_spacer_before(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
    """The longer the filler before a record, the worse it is found: .90 with none, .48 with 7."""
    return np.asarray(0.9 - 0.06 * layout.before, dtype=np.float64)


def by_spacer_after(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
    """As `by_spacer_before`, for the filler after a record."""
    return np.asarray(0.9 - 0.06 * layout.after, dtype=np.float64)


NULLS: dict[str, Truth] = {
    "constant": constant(0.8),
    "depth": deep,
    "item": by_item,
    "context": by_context,
    "runs": in_runs,
    "floor": constant(0.05),
    "ceiling": constant(0.95),
    "drift": drifting,
    "spacer-before": by_spacer_before,
    "spacer-after": by_spacer_after,
}
"""Worlds without phase: no verdict on them should be ``phase-sensitive``."""
