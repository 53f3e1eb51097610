"""Whether a prefix was found: by the server's count, or by the time that answers take."""

from __future__ import annotations

import pytest

from kvphase.runtimes.reuse import Reuse
from runtimes.doubles import ask

PREFIX = tuple(range(1000))
ONE = ask(prefix=PREFIX)
OTHER = ask(prefix=(*PREFIX, 7))


@pytest.mark.parametrize(
    ("seconds", "lost"),
    [
        ((10.0, 0.5, 0.6), 0),
        ((10.0, 9.0, 11.0), 2),
        ((10.0, 0.5, 9.0, 0.5), 1),
        ((0.3, 0.3, 0.3), 0),  # too quick to tell a prefill from the rest
    ],
)
def test_without_a_count_the_time_tells(seconds: tuple[float, ...], lost: int) -> None:
    reuse = Reuse()
    for one in seconds:
        reuse.notice(ONE, None, one)
    assert reuse.lost == lost


@pytest.mark.parametrize(
    ("cached", "settle", "lost"),
    [((0, 1000, 1000), 1, 0), ((0, 0, 0), 1, 2), ((0, 0, 1000), 2, 0), ((0, 744, 744), 1, 0)],
)
def test_a_count_tells_more(cached: tuple[int, ...], settle: int, lost: int) -> None:
    reuse = Reuse(grain=256, settle=settle)
    for count in cached:
        reuse.notice(ONE, count, 5.0)
    assert reuse.lost == lost


def test_only_what_was_found_is_expected_again() -> None:
    reuse = Reuse()
    assert not reuse.expects(ONE)
    reuse.notice(ONE, 0, 5.0)
    assert not reuse.expects(ONE)
    reuse.notice(ONE, 1000, 0.1)
    assert reuse.expects(ONE)
    assert not reuse.expects(OTHER)
    reuse.notice(OTHER, 0, 5.0)
    assert not reuse.expects(ONE)
    reuse.notice(OTHER, 1001, 0.1)
    reuse.forget()
    assert not reuse.expects(OTHER)
