"""What the tests see of a run: rows, and the strata inside which they are exchangeable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.types import Answers

PERIODS = (*range(2, 17), 24, 32, 64, 128)
"""Candidate periods of an in-sequence screen."""
ROWS_PER_RESIDUE = 5
"""A period is a candidate only if its residues hold this many answers on average."""


@dataclass(frozen=True, slots=True)
class Series:
    """Rows whose outcomes are exchangeable inside a stratum when phase does not matter.

    Every array has n rows first.
    """

    phase: NDArray[np.int64]
    """Position whose residues are compared, shape (n,)."""
    along: NDArray[np.int64]
    """Position that tells one cycle of a period from the next, shape (n,)."""
    outcome: NDArray[np.float64]
    """What is permuted, shape (n,): right answers of a row, or the residual of its accuracy."""
    weight: NDArray[np.float64]
    """Answers behind a row, shape (n,)."""
    stratum: NDArray[np.int64]
    """Labels 0..k-1, shape (n,)."""
    fitted: NDArray[np.float64]
    """What was taken out of the outcome before permuting, shape (n,); zero without nuisance."""
    nuisance: NDArray[np.float64]
    """Orthonormal regressors that are taken out again after permuting, shape (n, k), k may be 0.

    With k > 0 the test is Freedman and Lane's, studentised; with k = 0 it is exact.
    """
    counts: bool = False
    """Rows are counts of right answers; permuting answers then means a hypergeometric draw."""

    def __len__(self) -> int:
        return int(self.phase.shape[0])


def cells(*labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the distinct combinations of ``labels`` (each of shape (n,)) from 0."""
    if labels[0].size == 0:
        return np.zeros(0, dtype=np.int64)
    _, index = np.unique(np.stack(labels, axis=1), axis=0, return_inverse=True)
    return index.reshape(-1).astype(np.int64)


def per_answer(answers: Answers) -> Series:
    """An in-sequence screen: one row an answer, exchangeable within (context, block)."""
    n = len(answers)
    return Series(
        phase=answers.position,
        along=answers.position,
        outcome=answers.correct.astype(np.float64),
        weight=np.ones(n),
        stratum=cells(answers.context, answers.block),
        fitted=np.zeros(n),
        nuisance=np.zeros((n, 0)),
    )


def per_prefill(answers: Answers, modulus: int) -> tuple[Series, int]:
    """A padding sweep: one row a prefill (context, pad), its accuracy the outcome.

    Context mean and the linear and quadratic terms of the pad are taken out, so that a drift
    along the pads is no phase effect; what is left is permuted over the pads of a context. Answers
    of one prefill stand or fall together in this way, whatever makes them do so.

    Returns:
        The series, and the largest divisor of ``modulus`` modulo which every target of a prefill
        has the same residue: no finer period can be told from such data.
    """
    rows = cells(answers.context, answers.pad)
    _, first = np.unique(rows, return_index=True)
    weight = np.bincount(rows).astype(np.float64)
    accuracy = np.bincount(rows, weights=answers.correct) / weight
    context, pad = answers.context[first], answers.pad[first]
    home = _base_of_context(answers)
    apart = answers.position - answers.pad - home
    shared = math.gcd(modulus, *(int(d) for d in np.unique(np.abs(apart))))
    nuisance = _trend(context, pad)
    fitted = nuisance @ (nuisance.T @ accuracy)
    series = Series(
        phase=pad + home[first] % modulus,
        along=pad,
        outcome=accuracy - fitted,
        weight=weight,
        stratum=cells(context),
        fitted=fitted,
        nuisance=nuisance,
    )
    return series, shared


def _base_of_context(answers: Answers) -> NDArray[np.int64]:
    """Position minus pad of each context's first answer, for every answer, shape (n,)."""
    _, first, inverse = np.unique(answers.context, return_index=True, return_inverse=True)
    base: NDArray[np.int64] = (answers.position - answers.pad)[first]
    return base[inverse.reshape(-1)]


def _trend(context: NDArray[np.int64], pad: NDArray[np.int64]) -> NDArray[np.float64]:
    """Orthonormal 1, pad, pad squared of each context, shape (rows, at most 3 x contexts)."""
    columns = []
    for name in np.unique(context):
        here = context == name
        x = pad[here] - pad[here].mean()
        powers = np.stack([np.ones_like(x), x, x * x], axis=1)[:, : min(3, len(np.unique(x)))]
        basis, _ = np.linalg.qr(powers / np.maximum(1.0, np.abs(powers).max(axis=0)))
        block = np.zeros((len(context), basis.shape[1]))
        block[here] = basis
        columns.append(block)
    return np.concatenate(columns, axis=1) if columns else np.zeros((len(context), 0))


def counted(residue: NDArray[np.int64], n: NDArray[np.int64], correct: NDArray[np.int64]) -> Series:
    """Counts by residue: all answers exchangeable, one row a residue."""
    rows = len(residue)
    return Series(
        phase=residue,
        along=residue,
        outcome=correct.astype(np.float64),
        weight=n.astype(np.float64),
        stratum=np.zeros(rows, dtype=np.int64),
        fitted=np.zeros(rows),
        nuisance=np.zeros((rows, 0)),
        counts=True,
    )


def screen_candidates(series: Series) -> tuple[int, ...]:
    """Periods with two full cycles within the positions and enough answers for each residue."""
    if len(series) == 0:
        return ()
    span = int(series.along.max() - series.along.min()) + 1
    return tuple(p for p in PERIODS if 2 * p <= span and ROWS_PER_RESIDUE * p <= len(series))


def sweep_candidates(series: Series, shared: int) -> tuple[int, ...]:
    """Divisors of ``shared`` (itself too) of which the pads hold two full cycles."""
    if len(series) == 0:
        return ()
    span = int(series.along.max() - series.along.min()) + 1
    return tuple(p for p in range(2, shared + 1) if shared % p == 0 and 2 * p <= span)
