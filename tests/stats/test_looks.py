from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kvphase.stats.looks import WEIGHTS, combined, looks_at, weights_of

P = st.floats(0.0, 1.0)
SEEN = st.lists(st.one_of(st.none(), P), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("contexts", "looks"),
    [
        (0, ()),
        (1, (1,)),
        (3, (3,)),
        (4, (1, 2, 3, 4)),
        (5, (2, 3, 4, 5)),
        (6, (2, 3, 5, 6)),
        (16, (4, 8, 12, 16)),
    ],
)
def test_where_to_look(contexts: int, looks: tuple[int, ...]) -> None:
    assert looks_at(contexts) == looks


@given(st.integers(1, 500))
def test_looks_are_distinct_end_with_all_and_have_weights(contexts: int) -> None:
    looks = looks_at(contexts)
    assert list(looks) == sorted(set(looks))
    assert looks[-1] == contexts
    assert math.isclose(sum(weights_of(looks)), 1.0)
    assert len(weights_of(looks)) == len(looks)


def test_other_numbers_of_looks_have_no_weights() -> None:
    assert weights_of(()) == ()
    with pytest.raises(ValueError, match="2 looks"):
        weights_of((1, 2))
    with pytest.raises(ValueError, match="2 looks"):
        combined([0.1, 0.1], (1.0,))


@given(SEEN)
def test_never_below_the_smallest_p(seen: list[float | None]) -> None:
    together = combined(seen, WEIGHTS)
    known = [p for p in seen if p is not None]
    if not known:
        assert together is None
        return
    assert together is not None
    assert min(known) <= together <= 1.0


@given(SEEN, st.integers(0, 3), P)
def test_smaller_p_values_and_more_looks_never_raise_it(
    seen: list[float | None], index: int, smaller: float
) -> None:
    before = combined(seen, WEIGHTS)
    changed = list(seen)
    old = changed[index % len(changed)]
    changed[index % len(changed)] = smaller if old is None else min(smaller, old)
    after = combined(changed, WEIGHTS)
    assert after is not None
    assert before is None or after <= before
    if len(seen) < len(WEIGHTS):
        longer = combined([*seen, smaller], WEIGHTS)
        assert longer is not None
        assert before is None or longer <= before


def test_one_look_changes_nothing() -> None:
    assert combined([0.03], weights_of(looks_at(2))) == 0.03
    assert combined([None], (1.0,)) is None


def test_the_level_holds_over_looks_that_share_their_answers() -> None:
    """Each look sees the earlier ones' answers again: a running mean of what is all noise."""
    runs, alpha = 20_000, 0.05
    quarters = np.random.default_rng(3).normal(size=(runs, len(WEIGHTS)))
    z = np.cumsum(quarters, axis=1) / np.sqrt(np.arange(1, len(WEIGHTS) + 1))
    p = 2 * stats.norm.sf(np.abs(z))
    stopped = sum((combined(list(row), WEIGHTS) or 1.0) <= alpha for row in p)
    naive = int((p <= alpha).any(axis=1).sum())
    bound = int(stats.binom.isf(0.001, runs, alpha))
    assert stopped <= bound
    assert naive > 2 * bound
    # The bound is not idle: a good part of the level is really spent.
    assert stopped > 0.6 * alpha * runs
