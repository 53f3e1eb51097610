from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kvphase.stats import wilson
from kvphase.stats.intervals import difference_lower95


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_equals_scipy(counts: tuple[int, int]) -> None:
    correct, n = counts
    theirs = stats.binomtest(correct, n).proportion_ci(method="wilson")
    assert wilson(correct, n) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_newcombe_matches_its_published_example() -> None:
    # 56/70 against 48/80, Newcombe (1998), table II, method 10, two-sided 95%: .0524 to .3339.
    # One-sided limits use a smaller normal quantile, so the example is remade at that quantile.
    low_first, _ = wilson(56, 70, z=1.6448536269514722)
    _, high_second = wilson(48, 80, z=1.6448536269514722)
    by_hand = 0.2 - math.sqrt((0.8 - low_first) ** 2 + (high_second - 0.6) ** 2)
    assert difference_lower95(56, 70, 48, 80) == pytest.approx(by_hand)
    assert 0.0524 < difference_lower95(56, 70, 48, 80) < 0.2


def test_difference_limit_keeps_its_level_for_rare_flips() -> None:
    rng = np.random.default_rng(3)
    p, n = 0.03, 100
    first, second = rng.binomial(n, p, 2000), rng.binomial(n, p, 2000)
    above = np.mean(
        [difference_lower95(int(a), n, int(b), n) > 0 for a, b in zip(first, second, strict=True)]
    )
    assert above <= 0.07


def test_no_repeats_give_no_excess() -> None:
    assert difference_lower95(30, 100, 0, 0) < 0
