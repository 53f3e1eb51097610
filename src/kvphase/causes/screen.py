"""The screen that depth and phase share: contexts of every length, targets at every residue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvphase.causes.scene import MODULUS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.causes.scene import Scene
    from kvphase.types import Answers, Ask, Flow

NUMBER = 100
"""Of the first context."""


def contexts(scene: Scene, first: int, last: int) -> list[list[Ask]]:
    """Questions of the screen's contexts ``first .. last - 1``, one list each.

    Lengths run over all residues, so that no residue of the question goes with all of them. Where
    cached prefixes were found to change answers, every question is asked cold.
    """
    size = scene.design.context_tokens
    return [
        scene.fair(scene.content(NUMBER + k, size + k % MODULUS).asks) for k in range(first, last)
    ]


def asked(scene: Scene, first: int, last: int) -> Flow[Answers]:
    """Ask those contexts; returns all their answers."""
    answers = None
    for context in contexts(scene, first, last):
        got = yield context
        answers = got if answers is None else answers.join(got)
    if answers is None:
        raise AssertionError("at least one context is asked")
    return answers


def thirds(answers: Answers) -> NDArray[np.int64]:
    """Third of its context's targets in which each answer's target stands, shape (n,)."""
    third = np.zeros(len(answers), np.int64)
    for context in np.unique(answers.context):
        here = np.flatnonzero(answers.context == context)
        order = answers.position[here].argsort().argsort()
        third[here] = order * 3 // max(1, len(here))
    return third


__all__ = ["asked", "contexts", "thirds"]
