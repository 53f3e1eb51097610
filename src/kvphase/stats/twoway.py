"""Answers of one content at several prefills: items by prefills, both taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.series import cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.types import Answers


@dataclass(frozen=True, slots=True)
class Content:
    """One content: the same items at each of its prefills, as far as they were answered.

    I items, J prefills; residues are modulo the period.
    """

    asked: NDArray[np.bool_]
    """Which cells hold a finished answer, shape (I, J)."""
    right: NDArray[np.float64]
    """1 right, 0 wrong, 0 where nothing was answered, shape (I, J)."""
    home: NDArray[np.int64]
    """Residue of each item's target before any filler, shape (I,)."""
    block: NDArray[np.int64]
    """Exchangeability block of each item, shape (I,)."""
    pad: NDArray[np.int64]
    """Residue of the filler before the content, shape (J,)."""
    question: NDArray[np.int64]
    """Residue of the question's position, shape (J,)."""

    def target(self, period: int) -> NDArray[np.int64]:
        """Residue of every target's position, shape (I, J)."""
        return (self.home[:, None] + self.pad[None, :]) % period

    def distance(self, period: int) -> NDArray[np.int64]:
        """Residue of every distance from target to question, shape (I, J)."""
        return (self.question[None, :] - self.target(period)) % period


def contents(answers: Answers, period: int) -> list[Content]:
    """The contents of finished shift answers whose question's position is known.

    A cell that was asked twice counts once, with its first answer.
    """
    return [
        _content(answers.where(answers.context == name), period)
        for name in np.unique(answers.context)
    ]


def _content(of: Answers, period: int) -> Content:
    _, item_first, item = np.unique(of.item, return_index=True, return_inverse=True)
    prefill = cells(of.pad, of.question)
    _, prefill_first = np.unique(prefill, return_index=True)
    shape = len(item_first), len(prefill_first)
    _, once = np.unique(item.reshape(-1) * shape[1] + prefill, return_index=True)
    asked, right = np.zeros(shape, dtype=bool), np.zeros(shape)
    at = item.reshape(-1)[once], prefill[once]
    asked[at] = True
    right[at] = of.correct[once]
    return Content(
        asked=asked,
        right=right,
        home=(of.position - of.pad)[item_first] % period,
        block=of.block[item_first],
        pad=of.pad[prefill_first] % period,
        question=of.question[prefill_first] % period,
    )


class TwoWay:
    """Least squares of item and prefill effects on the cells that were answered.

    The items' effects are eliminated first; what is left is a J x J system for the prefills'
    (Schur's complement), solved with a generalised inverse, so that any pattern of missing cells
    will do.
    """

    def __init__(self, asked: NDArray[np.bool_]) -> None:
        """Prepare for the cells of ``asked``, shape (I, J)."""
        self._asked = asked.astype(np.float64)
        self._of_item = np.maximum(self._asked.sum(axis=1), 1.0)
        means = self._asked / self._of_item[:, None]
        system = np.diag(self._asked.sum(axis=0)) - self._asked.T @ means
        self._solve = np.linalg.pinv(system, 1e-10, hermitian=True)
        self._means = means

    def prefills(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Prefill effects, items' effects taken out: shape (I, J, k) in, (J, k) out.

        They are known up to a constant; values of cells without an answer must be zero.
        """
        effects: NDArray[np.float64] = self._solve @ (
            values.sum(axis=0) - self._means.T @ values.sum(axis=1)
        )
        return effects

    def residuals(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values (I, J, k) without their item and prefill effects; zero where nothing is known."""
        prefills = self.prefills(values)
        items = values.sum(axis=1) / self._of_item[:, None] - self._means @ prefills
        left: NDArray[np.float64] = values - items[:, None, :] - prefills[None, :, :]
        return left * self._asked[:, :, None]


def merged_blocks(block: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """Neighbouring blocks put together until each holds ``least`` items, shape (I,), from 0.

    Only few labels can trade places inside a small block; items of neighbouring ones are nearly
    as exchangeable.
    """
    names, size = np.unique(block, return_counts=True)
    group = np.zeros(len(names), dtype=np.int64)
    held = current = 0
    for index, count in enumerate(size):
        group[index] = current
        held += int(count)
        if held >= least:
            current, held = current + 1, 0
    if held:  # what is left over joins the last full one
        group[group == current] = max(0, current - 1)
    return group[np.searchsorted(names, block)]
