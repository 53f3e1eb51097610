"""Bounds of the worst phase and of the gap: wrong in at most 5% of simulated runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from kvphase.decide.bounds import LEVEL, bounds, design_effects, growth, limits
from kvphase.decide.phases import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS = 1_000
MOST = 70
"""Misses allowed in 1,000 runs of a bound that is wrong in exactly 5% of them: more than 70 come
with probability .002."""
ONE_WEAK = [0.95] * 7 + [0.85]
"""The least favourable truth for the bounds: only one phase can be mistaken for the worst."""
WORLDS = {
    "one weak phase": (ONE_WEAK, 0.0, 16, 8),
    "all phases alike": ([0.8] * 8, 0.0, 16, 8),
    "easy and hard contexts": ([0.8] * 7 + [0.65], 0.15, 16, 8),
    "easy and hard contexts, few": ([0.8] * 7 + [0.65], 0.15, 5, 20),
    "near the ceiling": ([0.999] * 7 + [0.97], 0.0, 16, 4),
    "many contexts": ([0.85, 0.85, 0.6, 0.85] * 2, 0.1, 150, 3),
}


def drawn(
    truth: list[float], spread: float, contexts: int, each: int, rng: np.random.Generator
) -> Tally:
    """Right answers of one run; contexts lie ``spread`` above or below the truth."""
    ease = rng.choice((-spread, spread), size=(contexts, 1))
    n = np.full((contexts, len(truth)), each)
    right = rng.binomial(n, np.clip(np.array(truth) + ease, 0.0, 1.0))
    return Tally(n.astype(np.float64), right.astype(np.float64))


def test_the_margin_of_the_simulations() -> None:
    assert stats.binom.sf(MOST, RUNS, LEVEL) < 0.003


@pytest.mark.parametrize("world", WORLDS)
def test_bounds_cover(world: str) -> None:
    truth, spread, contexts, each = WORLDS[world]
    worst, gap = min(truth), 100 * (max(truth) - min(truth))
    rng = np.random.default_rng([17, *world.encode()])
    misses = np.zeros(4, np.int64)
    for _ in range(RUNS):
        found = bounds(drawn(truth, spread, contexts, each, rng))
        misses += (
            found.worst_low > worst,
            found.worst_high < worst,
            found.gap_low_pp > gap,
            found.gap_high_pp < gap,
        )
    assert misses.max() <= MOST, misses


def test_the_bound_of_the_worst_phase_is_not_wastefully_low() -> None:
    # A bound that is never wrong would be true too. Here one phase is far below all others, so the
    # level is spent: with exact limits about 3 to 5% of bounds miss.
    rng = np.random.default_rng(3)
    truth = [0.95] * 7 + [0.6]
    missed = sum(bounds(drawn(truth, 0.0, 40, 10, rng)).worst_low > 0.6 for _ in range(RUNS))
    assert missed >= 15


def test_limits_are_clopper_and_pearsons_where_contexts_do_not_differ() -> None:
    n, right = np.full((200, 1), 5.0), np.tile([[5.0], [4.0], [5.0], [4.0]], (50, 1))
    low, high = limits(Tally(n, right), 0.05)
    exact = stats.binomtest(900, 1000).proportion_ci(0.90)
    assert float(low[0]) == pytest.approx(exact.low, abs=2e-4)
    assert float(high[0]) == pytest.approx(exact.high, abs=2e-4)


def test_contexts_that_fail_as_a_whole_count_as_one_answer() -> None:
    n = np.full((20, 1), 50.0)
    right = np.where(np.arange(20)[:, None] < 5, 0.0, 50.0)
    assert float(design_effects(Tally(n, right))[0]) == pytest.approx(50 * 20 / 19)
    low, _ = limits(Tally(n, right), 0.05)
    alone, _ = limits(Tally(np.ones((20, 1)), right / 50), 0.05)
    assert float(low[0]) == pytest.approx(float(alone[0]), abs=0.02)


def test_everything_right_is_no_proof() -> None:
    few = Tally(np.full((4, 8), 2.0), np.full((4, 8), 2.0))
    found = bounds(few)
    assert found.worst_low < 0.6
    assert found.worst_high == 1.0
    assert found.gap_low_pp == 0.0
    assert found.gap_high_pp > 40


@pytest.mark.parametrize("contexts", [0, 1])
def test_nothing_is_known_from_a_single_context(contexts: int) -> None:
    found = bounds(Tally(np.full((contexts, 8), 9.0), np.full((contexts, 8), 9.0)))
    assert (found.worst_low, found.worst_high) == (0.0, 1.0)
    assert (found.gap_low_pp, found.gap_high_pp) == (0.0, 100.0)


def test_a_phase_that_was_not_asked_is_not_known() -> None:
    n: NDArray[np.float64] = np.full((20, 8), 10.0)
    n[:, 3] = 0.0
    found = bounds(Tally(n, 0.9 * n))
    assert found.worst_low == 0.0
    assert found.gap_high_pp == 100.0


def test_growth_is_by_the_square_of_the_distance() -> None:
    assert growth(0.86, 0.92, 0.90) == pytest.approx(9.0)
    assert growth(0.93, 0.88, 0.90) == pytest.approx(6.25)
    assert growth(7.0, 3.0, 5.0) == pytest.approx(4.0)
    assert growth(0.86, 0.90, 0.90) is None
    assert math.isclose(growth(0.90, 0.95, 0.91) or 0.0, 1.5625)
