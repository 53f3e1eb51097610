from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kvphase.stats.permute import p_value, projector
from kvphase.stats.series import Series, counted

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rows(outcome: list[float], stratum: list[int]) -> Series:
    n = len(outcome)
    return Series(
        phase=np.arange(n),
        along=np.arange(n),
        outcome=np.array(outcome),
        weight=np.ones(n),
        stratum=np.array(stratum),
        fitted=np.zeros(n),
        nuisance=np.zeros((n, 0)),
    )


@pytest.mark.parametrize(
    "values", [[1, 0, 0, 1, 1, 0, 1, 1, 1, 0], [0.5, 2, 3, 1, 4, 7, 7, 7, 1, 0]]
)
def test_values_stay_in_their_stratum(values: list[float]) -> None:
    stratum = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3]
    series = rows(values, stratum)
    drawn = projector(series, series.stratum, np.eye(10), np.random.default_rng(0))(50)
    assert drawn.shape == (50, 10)
    for label in range(4):
        here = series.stratum == label
        expected = np.sort(series.outcome[here])
        assert (np.sort(drawn[:, here], axis=1) == expected).all()
    assert len(np.unique(drawn, axis=0)) > 10


@pytest.mark.parametrize("values", [[1, 1, 0, 0], [3.0, 1.0, 0.0, 0.0]])
def test_every_arrangement_is_equally_likely(values: list[float]) -> None:
    series = rows(values, [0] * 4)
    drawn = projector(series, series.stratum, np.eye(4), np.random.default_rng(0))(12_000)
    _, times = np.unique(drawn, axis=0, return_counts=True)
    arrangements = len(set(itertools.permutations(values)))
    assert len(times) == arrangements
    expected = 12_000 / arrangements
    assert np.abs(times - expected).max() < 5 * np.sqrt(expected)


def test_counts_are_dealt_without_replacement() -> None:
    n, correct = np.array([5, 10, 20]), np.array([5, 1, 9])
    series = counted(np.arange(3), n, correct)
    drawn = projector(series, series.stratum, np.eye(3), np.random.default_rng(0))(4_000)
    assert (drawn.sum(axis=1) == 15).all()
    assert (drawn <= n).all()
    assert drawn.mean(axis=0) == pytest.approx(15 * n / 35, abs=0.1)


def test_p_value_stops_at_the_very_draw() -> None:
    hits = np.zeros(10_000, dtype=bool)
    hits[[3, 10, 100]] = True
    at = 0

    def draw(size: int) -> NDArray[np.bool_]:
        nonlocal at
        at += size
        return hits[at - size : at]

    assert p_value(draw, enough=3) == 3 / 101


def test_p_value_without_exceedance_is_the_smallest_possible() -> None:
    assert p_value(lambda size: np.zeros(size, dtype=bool)) == 1 / 10_000


@pytest.mark.parametrize("true_p", [0.002, 0.05, 0.4])
def test_p_value_estimates_its_exceedance_probability(true_p: float) -> None:
    rng = np.random.default_rng(1)
    estimates = [p_value(lambda size: rng.random(size) < true_p) for _ in range(60)]
    # Inverse binomial sampling to 30 exceedances: a coefficient of variation of at most .22.
    assert np.mean(estimates) == pytest.approx(true_p, rel=0.12)
