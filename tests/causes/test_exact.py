"""Exact tests and their power, against their definitions."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvphase.causes.base import LEVEL, POWER, TESTS
from kvphase.causes.exact import binomial_p, detectable, power_of_sign, sign_p


def tail(k: int, n: int, rate: float) -> float:
    return sum(comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(k, n + 1))


@settings(deadline=None)
@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_binomial_p_is_the_upper_tail(case: tuple[int, int]) -> None:
    n, k = case
    assert binomial_p(k, n, 0.3) == pytest.approx(tail(k, n, 0.3), rel=1e-9)


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 30))
def test_sign_test_is_one_sided_and_symmetric_in_total(more: int, fewer: int) -> None:
    assert sign_p(more, fewer) == pytest.approx(tail(more, more + fewer, 0.5), rel=1e-9)


def test_fifteen_changes_without_any_other_way_are_the_fewest_that_are_found() -> None:
    assert sign_p(14, 0) > LEVEL >= sign_p(15, 0)
    assert pytest.approx(0.0005) == LEVEL * TESTS


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_power_is_that_of_all_outcomes(noise: float) -> None:
    n, effect = 40, 0.5
    exact = 0.0
    for fewer in range(n + 1):
        chance = comb(n, fewer) * noise**fewer * (1 - noise) ** (n - fewer)
        for more in range(n - fewer + 1):
            rate = (effect + noise) / (1 - noise)
            given_fewer = comb(n - fewer, more) * rate**more * (1 - rate) ** (n - fewer - more)
            exact += chance * given_fewer * (sign_p(more, fewer) <= LEVEL)
    assert power_of_sign(n, effect, noise) == pytest.approx(exact, abs=1e-6)


def test_what_is_detectable_has_the_power_and_one_point_less_has_not() -> None:
    found = detectable(96, 0.02, POWER)
    assert found is not None
    assert power_of_sign(96, found, 0.02) >= POWER > power_of_sign(96, found - 0.01, 0.02)
    assert detectable(14, 0.0, POWER) is None
