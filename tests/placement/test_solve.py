"""The pure part: grid, spans, and filler solved for all spans together."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvphase.errors import UsageError
from kvphase.placement.grid import Grid
from kvphase.placement.profile import published_names, read_profile
from kvphase.placement.solve import Wish, solve
from kvphase.placement.verify import paired, sign


@pytest.mark.parametrize(
    ("stride", "window", "start", "end", "cut"),
    [
        (4, 4, 4, 8, False),
        (4, 4, 3, 5, True),
        (4, 4, 3, 4, False),
        (4, 8, 5, 9, False),  # tokens 4 to 11 are one window
        (4, 8, 3, 9, True),
        (8, 8, 6, 10, True),
        (4, 8, 0, 9, True),
    ],
)
def test_a_span_straddles_if_no_window_holds_it(
    stride: int, window: int, start: int, end: int, cut: bool
) -> None:
    grid = Grid.of(stride, window)
    held = [
        range(j * stride - (window - stride), j * stride + stride)
        for j in range((end // stride) + 2)
    ]
    assert cut != any(start in one and end - 1 in one for one in held)
    assert grid.straddles(start, end) == cut


@given(st.data())
def test_solved_exactly(data: st.DataObject) -> None:
    period = data.draw(st.integers(2, 5))
    count = data.draw(st.integers(1, 3))
    sizes = [
        sorted(data.draw(st.sets(st.integers(1, 2 * period), max_size=5))) for _ in range(count)
    ]
    worth = st.lists(st.integers(0, 4), min_size=period, max_size=period)
    wishes = [
        Wish(
            data.draw(st.integers(0, 30)),
            data.draw(st.integers(-1, count - 1)),
            np.array(data.draw(worth), np.float64),
        )
        for _ in range(data.draw(st.integers(1, 4)))
    ]

    def value(chosen: tuple[int, ...]) -> float:
        return sum(
            float(one.value[(one.start + sum(chosen[: one.slot + 1])) % period]) for one in wishes
        )

    every = product(*([0, *one] for one in sizes))
    best = max(every, key=lambda c: (value(c), -sum(c), -sum(map(bool, c))))
    found = solve(wishes, sizes, period)
    assert found.value == pytest.approx(value(found.sizes))
    assert found.value == pytest.approx(value(best))
    assert found.tokens == sum(best)


def test_published_profiles_are_somebody_elses() -> None:
    flash = read_profile("published:deepseek-v4-flash")
    assert (flash.model, flash.foreign) == ("DeepSeek-V4-Flash-0731", True)
    assert (flash.period, flash.window, len(flash.curve)) == (4, 8, 4)
    assert flash.curve[0].correct == 206 + 208
    assert read_profile("published:DeepSeek-V4.1-Flash-0910").period == 2
    assert read_profile("published:full-attention").says == "flat"
    for name in published_names():
        assert read_profile(f"published:{name}").foreign
    for name in ("published:deepseek-v4", "published:", "published:gpt"):
        with pytest.raises(UsageError, match="known are"):
            read_profile(name)


def test_sizes_that_cannot_be_are_refused() -> None:
    for stride, window in ((0, 1), (8, 4), (4, 10**9)):
        with pytest.raises(UsageError):
            Grid.of(stride, window)


def test_paired_figures() -> None:
    low, high = paired(10, 2, 40)
    assert 0 < low < 20 < high < 40
    assert sign(0, 0) == 1.0
    assert sign(8, 0) == pytest.approx(2 / 256)
