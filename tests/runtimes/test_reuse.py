"""Whether a prefix was found: by the server's count, or by the time that answers take."""

from __future__ import annotations

import pytest

from kvphase.runtimes.reuse import Reuse
from runtimes.doubles import ask

PREFIX = tuple(range(1000))
ONE = ask(prefix=PREFIX)
OTHER = ask(prefix=(*PREFIX, 7))


@pytest.mark.parametrize(
    ("seconds", "kept", "lost"),
    [
        ((10.0, 0.5, 0.6), 2, 0),
        ((10.0, 9.0, 11.0), 0, 2),
        ((10.0, 0.5, 9.0, 0.5), 2, 1),
        ((10.0, 5.0, 5.1), 1, 1),  # half the first one's time at most
        ((1.0, 0.6, 0.5), 1, 1),  # the shortest first one that tells
        ((0.99, 0.99, 0.99), 2, 0),  # too quick to tell a prefill from the rest
    ],
)
def test_without_a_count_the_time_tells(seconds: tuple[float, ...], kept: int, lost: int) -> None:
    reuse = Reuse()
    for one in seconds:
        reuse.notice(ONE, None, one)
    assert (reuse.kept, reuse.lost) == (kept, lost)


def test_each_prefix_is_timed_by_its_own_first_question() -> None:
    reuse = Reuse()
    for one, seconds in ((ONE, 10.0), (ONE, 4.0), (OTHER, 4.0), (OTHER, 4.0), (OTHER, 1.0)):
        reuse.notice(one, None, seconds)
    assert (reuse.kept, reuse.lost) == (2, 1)
    assert reuse.expects(OTHER)


def test_without_a_count_a_server_that_settles_late_has_lost_nothing_before() -> None:
    reuse = Reuse(settle=2)
    for seconds in (10.0, 10.0, 1.0, 10.0):
        reuse.notice(ONE, None, seconds)
    assert (reuse.kept, reuse.lost) == (1, 1)


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
