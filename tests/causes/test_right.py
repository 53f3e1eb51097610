"""Causes that lose right answers: length, the question's residue, depth, sampling, template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvphase.causes import depth, length, question, sampling, template
from kvphase.causes.base import Cause, Finding
from kvphase.types import Arm, Ask, Template
from ruled import chance, usual

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene

Tested = Callable[..., Finding]
CHAT = Template(head=(3, 4), tail=(5,), digest="chat")


def third(ask: Ask) -> int:
    return ask.item % 1000 * 3 // 28


WRONG: dict[Cause, Callable[[Ask], bool]] = {
    length.CAUSE: lambda ask: len(ask.prompt) > 1000,
    question.CAUSE: lambda ask: len(ask.prompt) % 4 == 1,
    depth.CAUSE: lambda ask: third(ask) == 1 and chance("deep", ask.item) < 0.7,
    sampling.CAUSE: lambda ask: ask.arm is Arm.SAMPLED and chance("drawn", ask.item) < 0.6,
    template.CAUSE: lambda ask: 4 in ask.prompt[:4] and chance("chat", ask.item) < 0.8,
}


@pytest.fixture
def scene(scene: Scene) -> Scene:
    return replace(scene, template=CHAT)


@pytest.mark.parametrize("cause", WRONG, ids=lambda cause: cause.name)
def test_found_where_it_is_and_nowhere_else(tested: Tested, scene: Scene, cause: Cause) -> None:
    for other in WRONG:
        found = tested(other, wrong=WRONG[cause], scene=scene)
        assert (found.status == "found") == (other is cause), found.evidence


@pytest.mark.parametrize("cause", WRONG, ids=lambda cause: cause.name)
def test_not_found_where_nothing_is(tested: Tested, scene: Scene, cause: Cause) -> None:
    found = tested(cause, scene=scene)
    assert found.status == "not-found"
    assert "nothing" not in str(found.would_have_seen)


def test_phase_is_neither_length_nor_question_nor_depth(tested: Tested, scene: Scene) -> None:
    def right(ask: Ask) -> bool:
        return usual(ask) and (ask.target % 4 != 2 or chance("weak", ask.item) < 0.3)

    for cause in (length.CAUSE, question.CAUSE, depth.CAUSE):
        found = tested(cause, right=right, scene=scene)
        assert found.status == "not-found", found.evidence


def test_exhibits_of_the_question_differ_in_nothing_but_filler(
    tested: Tested, scene: Scene
) -> None:
    found = tested(question.CAUSE, wrong=WRONG[question.CAUSE], scene=scene)
    for exhibit in found.exhibits:
        assert exhibit.first.target == exhibit.second.target
        assert exhibit.first.suffix == exhibit.second.suffix
        assert len(exhibit.first.prompt) % 4 != len(exhibit.second.prompt) % 4 == 1
