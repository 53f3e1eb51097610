"""Ways of asking that change answers are found, those that do not are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from kvphase.causes import CAUSES, batch, cache, decode, repeatability, split
from kvphase.causes.base import LEVEL, TESTS, Cause, Finding, missing
from kvphase.causes.scene import UNALIGNED, Scene
from kvphase.types import Arm, Ask, Limits
from ruled import chance

Tested = Callable[..., Finding]
ARMS = {
    split.CAUSE: Arm.SPLIT,
    cache.CAUSE: Arm.COLD,
    batch.CAUSE: Arm.TOGETHER,
}


def part(arm: Arm, share: float) -> Callable[[Ask], bool]:
    """Wrong under ``arm`` for a fixed part of the prompts."""
    return lambda ask: ask.arm is arm and chance("struck", ask.prompt) < share


def test_every_cause_is_counted_in_the_level() -> None:
    assert len(CAUSES) == len({cause.name for cause in CAUSES}) == TESTS


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_every_cause_declares_its_terms(cause: Cause) -> None:
    assert 0 < cause.least < cause.smallest < 1
    assert cause.power >= 0.99


@pytest.mark.parametrize(("cause", "arm"), ARMS.items(), ids=lambda x: getattr(x, "name", ""))
def test_an_arm_that_changes_answers_is_found(tested: Tested, cause: Cause, arm: Arm) -> None:
    found = tested(cause, wrong=part(arm, 0.4))
    assert found.status == "found"
    assert found.p_value is not None
    assert found.p_value <= LEVEL
    assert found.effect_pp == pytest.approx(40, abs=15)
    first, second = found.exhibits[0].first, found.exhibits[0].second
    assert first.prompt == second.prompt
    assert second.arm is arm
    assert found.exhibits[0].answers[0] != found.exhibits[0].answers[1] == " odd"


@pytest.mark.parametrize("cause", ARMS, ids=lambda cause: cause.name)
def test_nothing_is_found_where_nothing_changes(tested: Tested, cause: Cause) -> None:
    found = tested(cause)
    assert found.status == "not-found"
    assert found.p_value == 1.0
    assert "25%" in str(found.would_have_seen)


def test_the_first_look_ends_a_test_without_changes(tested: Tested) -> None:
    assert tested(split.CAUSE).n == 32
    assert tested(split.CAUSE, wrong=part(Arm.SPLIT, 0.1)).n == 96


def test_answers_that_change_by_themselves_are_no_other_cause(tested: Tested) -> None:
    for cause in ARMS:
        draw = random.Random(7)
        found = tested(cause, wrong=lambda _, draw=draw: draw.random() < 0.3)
        assert found.status == "not-found", found.evidence


def test_answers_that_change_by_themselves_are_found_as_such(tested: Tested) -> None:
    draw = random.Random(7)
    found = tested(repeatability.CAUSE, wrong=lambda _: draw.random() < 0.3)
    assert found.status == "found"
    assert tested(repeatability.CAUSE).status == "not-found"


def test_decoding_is_compared_with_giving(tested: Tested) -> None:
    def wrong(ask: Ask) -> bool:
        struck = chance("struck", ask.prompt) < 0.4
        return ask.arm is Arm.SCREEN and ask.generate > 1 and struck

    assert tested(decode.CAUSE, wrong=wrong).status == "found"
    assert tested(decode.CAUSE).status == "not-found"


def test_a_split_prefill_is_not_taken_for_the_cache(tested: Tested, scene: Scene) -> None:
    """A cached prefix that ends inside a group is a split prefill too."""

    def wrong(ask: Ask) -> bool:
        pieces = {Arm.SPLIT: ask.cut, Arm.COLD: 0}
        begins = pieces.get(ask.arm, len(ask.prefix))
        return begins % 4 != 0 and chance("struck", ask.prompt) < 0.5

    assert tested(split.CAUSE, wrong=wrong).status == "found"
    assert tested(cache.CAUSE, wrong=wrong).status == "found"
    knows = replace(scene, found=frozenset({"split"}))
    assert tested(cache.CAUSE, wrong=wrong, scene=knows).status == "not-found"
    lengths = {len(ask.prefix) % 4 for look in knows.looks() for ask in look}
    assert lengths == {0}
    every = {len(ask.prefix) % 4 for look in scene.looks(unaligned=True) for ask in look}
    assert every == {0, *UNALIGNED}


def test_what_an_endpoint_lacks_is_said(scene: Scene) -> None:
    bare = replace(scene, limits=Limits(4096, cold=False))
    untested = {cause.name for cause in CAUSES if missing(cause, bare) is not None}
    assert untested == {
        *("sampling", "split", "cache", "decode", "batch"),
        *("template", "generation", "instructions", "precision"),
    }
