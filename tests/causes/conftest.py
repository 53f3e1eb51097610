"""Flows of causes, run against an endpoint with a rule."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fakes import small_vocab
from kvphase.causes.scene import Scene
from kvphase.runs.execute import execute
from kvphase.runs.store import Store
from kvphase.types import About, Ask
from ruled import LIMITS, Ruled, usual

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvphase.causes.base import Cause, Finding


@pytest.fixture
def scene() -> Scene:
    return Scene(About("fake", "fake", model="fake"), LIMITS, small_vocab(), contexts=80)


@pytest.fixture
def tested(scene: Scene, tmp_path: Path) -> Callable[..., Finding]:
    """Test one cause on an endpoint: ``tested(CAUSE, wrong=..., right=..., scene=...)``."""

    def run(
        cause: Cause,
        wrong: Callable[[Ask], bool] = lambda _: False,
        right: Callable[[Ask], bool] = usual,
        scene: Scene = scene,
    ) -> Finding:
        runtime = Ruled(right=right, wrong=wrong, limits=scene.limits)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.kvphase"
        with Store.create(path, {}) as store:
            return asyncio.run(execute(cause.test(scene), runtime, store, stage=cause.name))

    return run
