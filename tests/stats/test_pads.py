"""Short sweeps: the level of the test, which periods are named, whether patterns repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from kvphase.probes.shift import GO_ON
from kvphase.stats.pads import families_agree, periods_of, single, swept

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Null = Callable[[np.random.Generator, int], NDArray[np.float64]]

PADS = 16


def walk(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    return np.cumsum(rng.normal(size=n))


def smooth(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Neighbouring pads resemble each other, as fillers that differ by a word do."""
    made = rng.normal(size=n + 32)
    for i in range(1, n + 32):
        made[i] += 0.7 * made[i - 1]
    kept: NDArray[np.float64] = made[32:]
    return kept


def one_off(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """A single odd answer, at the edge as often as elsewhere."""
    odd: NDArray[np.float64] = (np.arange(n) == rng.integers(n)).astype(np.float64)
    return odd


def step(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    return (np.arange(n) >= rng.integers(1, n)).astype(np.float64)


NULLS: dict[str, Null] = {
    "white": lambda rng, n: rng.normal(size=n),
    "drift": lambda rng, n: 5.0 * np.linspace(-1, 1, n) ** 2 + rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_t(1.5, size=n),
    "binary": lambda rng, n: (rng.random(n) < rng.random()).astype(np.float64),
    "walk": walk,
    "smooth": smooth,
    "one-off": one_off,
    "step": step,
}


def column(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 3])
def test_false_alarms_stay_inside_the_binomial_bound(tasks: int) -> None:
    """Half of the runs share what is odd at a pad between their tasks: it counts once."""
    runs = 320
    bound = int(stats.binom.ppf(0.999, runs, 0.01))
    alarms = []
    for seed in range(runs):
        name = sorted(NULLS)[seed % len(NULLS)]
        rng = np.random.default_rng([17, seed, tasks])
        shared = NULLS[name](rng, PADS)
        alike = bool((seed // len(NULLS)) % 2)
        series = [
            column(shared + 0.1 * NULLS[name](rng, PADS) if alike else NULLS[name](rng, PADS))
            for _ in range(tasks)
        ]
        found = swept(series, rng)
        if found.p_value is not None and found.p_value <= 0.005 and found.replicates:
            alarms.append((name, seed))
    assert len(alarms) <= bound, alarms


@pytest.mark.parametrize("period", [2, 4, 6, 8])
def test_a_period_is_named_and_no_multiple_of_it(period: int) -> None:
    rng = np.random.default_rng(period)
    pattern = np.where(np.arange(PADS) % period == 1, -1.0, 0.0)
    drift = 0.3 * np.linspace(0, 1, PADS)
    found = swept([column(pattern + drift + 0.02 * rng.normal(size=PADS))], rng)
    assert found.p_value is not None
    assert found.p_value <= 0.005
    assert found.period == period
    assert found.replicates == (period != 8 or found.replicates)


def test_tasks_with_weak_shifts_of_their_own_add_up() -> None:
    rng = np.random.default_rng(5)
    tasks = [
        column(np.where(np.arange(PADS) % 4 == i % 4, -1.0, 0.0) + 0.4 * rng.normal(size=PADS))
        for i in range(8)
    ]
    found = swept(tasks, rng)
    assert (found.period, found.replicates) == (4, True)


def test_eight_shifts_of_one_weak_slot_cannot_decide() -> None:
    """The reason why eight more are asked: too few arrangements of eight pads."""
    for residue in range(4):
        pattern = np.where(np.arange(8) % 4 == residue, -1.0, 0.0)
        found = swept([column(pattern)], np.random.default_rng(residue))
        assert found.p_value is not None
        assert 0.005 < found.p_value <= GO_ON


def test_what_lives_in_one_cycle_does_not_repeat() -> None:
    rng = np.random.default_rng(2)
    pattern = np.where(np.arange(PADS) == 5, -9.0, 0.0)
    found = swept([column(pattern + 0.1 * rng.normal(size=PADS))], rng)
    assert not found.replicates


def test_nothing_that_varies_gives_no_p_value() -> None:
    found = swept([np.ones((PADS, 1))], np.random.default_rng(0))
    assert (found.p_value, found.period, found.replicates) == (None, None, False)
    assert single([np.ones((PADS, 1))], 4, np.random.default_rng(0)) == 1.0
    assert periods_of(8) == (2, 3, 4)


def test_a_single_filler_s_own_pattern_is_not_shared() -> None:
    rng = np.random.default_rng(3)
    pattern = np.where(np.arange(PADS) % 4 == 1, -1.0, 0.0)
    noise = [0.1 * rng.normal(size=PADS) for _ in range(4)]
    shared = families_agree([column(pattern + one) for one in noise], 4)
    alone = families_agree([column(noise[0] + 9 * pattern), *map(column, noise[1:])], 4)
    assert shared is not None
    assert alone is not None
    assert shared < 0.01 < 0.05 < alone
    assert families_agree([column(pattern)] * 2, 4) is None
