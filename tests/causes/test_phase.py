"""Phase follows the target; where the cache is not trusted everything is asked cold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvphase.causes import phase, precision
from kvphase.causes.against import Against
from kvphase.causes.base import Finding
from kvphase.causes.minimal import MOST_TRIES, Pair, minimal, top
from kvphase.causes.screen import asked
from kvphase.runs.execute import execute
from kvphase.runs.store import Store
from ruled import Ruled, chance, usual

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.causes.scene import Scene
    from kvphase.types import Ask

Tested = Callable[..., Finding]


def weak(ask: Ask) -> bool:
    """Half of the answers are lost where the target's position is 2 modulo 4."""
    return usual(ask) and (ask.target % 4 != 2 or chance("weak", ask.item) < 0.4)


def test_phase_is_found_and_its_exhibits_show_it(tested: Tested) -> None:
    found = tested(phase.CAUSE, right=weak)
    assert found.status == "found"
    assert "period 4" in found.evidence
    assert found.effect_pp is not None
    assert 30 < found.effect_pp < 60
    for exhibit in found.exhibits:
        assert exhibit.first.target % 4 != exhibit.second.target % 4


def test_no_phase_is_not_found(tested: Tested) -> None:
    found = tested(phase.CAUSE)
    assert found.status == "not-found"
    assert "25 points" in str(found.would_have_seen)


def test_what_follows_the_question_is_not_phase(tested: Tested) -> None:
    found = tested(phase.CAUSE, right=lambda ask: usual(ask) and len(ask.prompt) % 4 != 1)
    assert found.status == "not-found"


def test_asked_cold_where_cached_prefixes_change_answers(tested: Tested, scene: Scene) -> None:
    sent: list[Ask] = []

    def right(ask: Ask) -> bool:
        sent.append(ask)
        return weak(ask)

    found = tested(phase.CAUSE, right=right, scene=replace(scene, found=frozenset({"cache"})))
    assert found.status == "found"
    assert not any(ask.prefix for ask in sent)


@pytest.mark.slow
def test_more_contexts_would_see_less(tested: Tested, scene: Scene) -> None:
    found = tested(phase.CAUSE, scene=replace(scene, contexts=160))
    assert "18 points" in str(found.would_have_seen)
    assert found.n == 160 * 24


def stored(scene: Scene, right: Callable[[Ask], bool], folder: Path) -> Against:
    """What an endpoint with this rule answered to the screen's first contexts."""
    with Store.create(folder / "against.kvphase", {}) as store:
        runtime = Ruled(right=right, limits=scene.limits)
        answers = asyncio.run(execute(asked(scene, 0, 20), runtime, store, stage="depth"))
        return Against("other", tuple(store.asks("depth")), answers)


def test_a_lower_level_of_the_same_shape_is_precision(
    tested: Tested, scene: Scene, tmp_path: Path
) -> None:
    other = stored(scene, weak, tmp_path)
    here = replace(scene, against=(other,))
    found = tested(
        precision.CAUSE,
        right=weak,
        wrong=lambda ask: chance("coarse", ask.item) < 0.2,
        scene=here,
    )
    assert found.status == "found"
    assert found.ci95 is not None
    assert found.ci95[0] < -0.2 * 65 < found.ci95[1]
    assert tested(precision.CAUSE, right=weak, scene=here).status == "not-found"


def test_another_shape_is_not_precision(tested: Tested, scene: Scene, tmp_path: Path) -> None:
    here = replace(scene, against=(stored(scene, usual, tmp_path),))
    found = tested(
        precision.CAUSE, right=lambda ask: usual(ask) and ask.target % 4 != 2, scene=here
    )
    assert found.status == "not-found"
    assert "shape over phases differs" in found.evidence


def test_the_pair_is_shrunk_and_still_differs(tested: Tested, scene: Scene, tmp_path: Path) -> None:
    def needs_target(ask: Ask) -> bool:
        return ask.target % 4 != 2

    found = tested(phase.CAUSE, right=weak)
    assert top([found]) is found
    runtime = Ruled(right=needs_target, limits=scene.limits)
    with Store.create(tmp_path / "pair.kvphase", {}) as store:
        pair: Pair | None = asyncio.run(
            execute(minimal(scene, found), runtime, store, stage="minimal")
        )
    assert pair is not None
    first, second = pair.steps
    assert pair.shrunk_from is not None
    assert max(len(step.prompt) for step in pair.steps) < pair.shrunk_from / 2
    assert first.answer == first.expected
    assert second.answer != second.expected
    assert len(runtime.asked) <= 16 * 16 + 2 + 2 * MOST_TRIES
