"""A shift run's answers as columns over the pads: what is tested of a task, and what is shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.stats import pads
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.types import Answers

FEW = 8
CLIP = 1e-6
"""Probabilities are taken as at least this far from 1: their logarithms are no more exact."""
CENSORED = 1.0
"""Log-odds by which an answer that was not among the scores lies below the lowest that was."""


def grid(
    answers: Answers, task: int, arm: Arm, block: int, column: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A column at each pad in the order of pads, shape (pads,)."""
    mask = (answers.item == task) & (answers.arm == arm.value) & (answers.block == block)
    order = np.argsort(answers.pad[mask], kind="stable")
    values: NDArray[np.float64] = column[mask][order]
    return values


def measure_of(task: dict[str, Any]) -> str:
    """What is tested of a task: ``score``, ``right`` or ``groups``."""
    if task["expected"] is None:
        return "groups"
    return "score" if task["scored"] else "right"


def with_measures(tasks: Sequence[dict[str, Any]], answers: Answers) -> tuple[dict[str, Any], ...]:
    """The tasks, with right and wrong as the measure where not one answer came with a score."""
    known = ~np.isnan(answers.logprob)
    return tuple(
        {**task, "scored": bool(task["scored"] and known[answers.item == i].any())}
        for i, task in enumerate(tasks)
    )


def complete(plan: dict[str, Any], answers: Answers) -> int:
    """Shifts that every task and filler has an answer at, from the first on."""
    screen = answers.arm == Arm.SCREEN.value
    counts = [
        int(((answers.item == i) & screen & (answers.block == block)).sum())
        for i, task in enumerate(plan["tasks"])
        for block in range(len(task["families"]))
    ]
    least = min(counts, default=0)
    return least if least in (FEW, 2 * FEW) else FEW if least > FEW else 0


def outcome(
    tasks: Sequence[dict[str, Any]], i: int, answers: Answers, arm: Arm, count: int
) -> NDArray[np.float64]:
    """What is tested of a task, shape (fillers, shifts, columns)."""
    task = tasks[i]
    blocks = range(len(task["families"]) if arm is Arm.SCREEN else 1)
    kind = measure_of(task)
    if kind == "groups":
        names, label = np.unique(answers.text, return_inverse=True)
        labels = label.reshape(-1).astype(np.float64)
        rows = [grid(answers, i, arm, b, labels)[:count] for b in blocks]
        stacked = np.stack(rows)[..., None] == np.arange(len(names))
        groups: NDArray[np.float64] = stacked[..., stacked.any(axis=(0, 1))].astype(np.float64)
        return groups
    if kind == "right":
        right = (answers.correct == 1).astype(np.float64)
        return np.stack([grid(answers, i, arm, b, right)[:count] for b in blocks])[..., None]
    mine = (answers.item == i) & np.isin(answers.arm, (Arm.SCREEN.value, Arm.TAIL.value))
    odds = np.zeros(len(answers))
    odds[mine] = log_odds(answers.logprob[mine])
    return np.stack([grid(answers, i, arm, b, odds)[:count] for b in blocks])[..., None]


def log_odds(logprob: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm of the odds of the right answer against all others, shape (n,).

    Not against the tempting one alone: that may be too unlikely to be among the scores. The right
    one, where it is not, ranks just below the lowest that is known.
    """
    right = np.minimum(logprob, 0.0)
    odds: NDArray[np.float64] = right - np.log(np.maximum(-np.expm1(right), CLIP))
    known = np.isfinite(odds)
    lowest = float(odds[known].min()) if known.any() else 0.0
    return np.where(known, odds, lowest - CENSORED)


def level_of(
    tasks: Sequence[dict[str, Any]], i: int, answers: Answers, arm: Arm, count: int
) -> NDArray[np.float64]:
    """Probability of the right answer, right or wrong, or the commonest answer; shape (shifts,)."""
    task = tasks[i]
    kind = measure_of(task)
    if kind == "score":
        column = np.exp(np.nan_to_num(answers.logprob, nan=-np.inf))
    elif kind == "right":
        column = (answers.correct == 1).astype(np.float64)
    else:
        mine = answers.where((answers.item == i) & (answers.arm == Arm.SCREEN.value))
        common = Counter(mine.text.tolist()).most_common(1)
        column = (answers.text == (common[0][0] if common else "")).astype(np.float64)
    blocks = range(len(task["families"]) if arm is Arm.SCREEN else 1)
    rows = np.stack([grid(answers, i, arm, b, column)[:count] for b in blocks])
    mean: NDArray[np.float64] = rows.mean(axis=0)
    return mean


def residue_means(level: NDArray[np.float64], period: int) -> NDArray[np.float64]:
    """Mean at each residue of the pad, without a drift, about the overall mean; shape (period,).

    Residues and drift are fitted together: four unequal cycles would leak into each other.
    """
    n = len(level)
    trend = pads.trend_of(n)[:, 1:]
    marks = (np.arange(n)[:, None] % period == np.arange(period)).astype(np.float64)
    both = np.concatenate([marks, trend], axis=1)
    fit = np.linalg.lstsq(both, level, rcond=None)[0][:period]
    clipped: NDArray[np.float64] = np.clip(fit, 0.0, 1.0) if level.max() <= 1.0 else fit
    return clipped
