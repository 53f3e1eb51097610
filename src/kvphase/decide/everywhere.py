"""Tasks of a suite that are right wherever they stand: no common phase is needed to see them.

What a prompt rests on may stand anywhere, so the tasks of a suite may have their weak shifts
anywhere; a curve over residues then averages them away. Whether a task is right at every shift
does not depend on where its fact stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.types import Answers


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Two runs of one suite."""

    tasks: int
    first: int
    """Tasks that the first run has right at every shift that both were asked at."""
    second: int
    p_value: float
    """Exact sign test over the tasks that only one of them has right everywhere."""


def everywhere(first: Answers, second: Answers) -> Everywhere:
    """Compare how many tasks are right at every shift.

    Under the hypothesis that the runs may be exchanged, task by task, each of the tasks that only
    one run has right everywhere is equally likely to be either's (McNemar's test, exact).

    Args:
        first: Answers to the shared questions, the task in ``context``.
        second: Answers to the same questions in the same order.
    """
    from scipy import special

    one, two = steady(first), steady(second)
    only = int((one & ~two).sum()), int((two & ~one).sum())
    p = min(1.0, 2.0 * float(special.bdtr(min(only), sum(only), 0.5))) if sum(only) else 1.0
    return Everywhere(len(one), int(one.sum()), int(two.sum()), p)


def steady(answers: Answers) -> NDArray[np.bool_]:
    """Whether each context (a task of a suite) has no wrong answer, shape (contexts,)."""
    _, label = np.unique(answers.context, return_inverse=True)
    wrong = np.bincount(label.reshape(-1), weights=answers.correct != 1)
    none: NDArray[np.bool_] = wrong == 0
    return none
