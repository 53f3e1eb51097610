"""What else answered the same questions: stored runs, and endpoints that are asked now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.causes.against import Against
from kvphase.causes.precision import CONTEXTS
from kvphase.causes.scene import otherwise
from kvphase.causes.screen import contexts
from kvphase.errors import UsageError
from kvphase.runs.execute import execute
from kvphase.runs.store import Store
from kvphase.runtimes.detect import HOST_AND_PORT, open_runtime
from kvphase.tokens import survey
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.causes.scene import Scene
    from kvphase.runs.budget import Meter
    from kvphase.types import Answers, Ask, Flow, Runtime

MOST = 1200
"""Questions of a stored run that are asked again at most."""
MARK = 10
"""Pad of the questions that another endpoint is asked, so that their ids are their own."""


def is_address(text: str) -> bool:
    """Whether ``text`` names an endpoint and not a file."""
    kinds = ("http://", "https://", "toy:", "lab:", "transformers:")
    return text.lower().startswith(kinds) or HOST_AND_PORT.fullmatch(text) is not None


def check_stored(named: Sequence[str], scene: Scene) -> None:
    """Refuse run files that cannot be compared with before anything is asked.

    Raises:
        UsageError: one cannot be read, has another tokenizer, or holds no needles.
    """
    for name in named:
        if not is_address(name):
            _stored(Path(name), scene)


async def others(
    named: Sequence[str], scene: Scene, store: Store, meter: Meter
) -> tuple[Against, ...]:
    """Answers of everything named, stored ones read and the others asked.

    Raises:
        UsageError: a file holds no needles, or a tokenizer is another one.
        RuntimeFault: an endpoint cannot be reached.
    """
    found = []
    for place, name in enumerate(named):
        if is_address(name):
            async with open_runtime(name) as runtime:
                found.append(await asked_now(runtime, scene, store, meter, place))
        else:
            found.append(_stored(Path(name), scene))
    return tuple(found)


async def asked_now(
    runtime: Runtime, scene: Scene, store: Store, meter: Meter, place: int
) -> Against:
    """Ask another endpoint the screen's first contexts; its answers are kept in the same file."""
    name = runtime.about.model or runtime.about.target
    vocab = await survey(runtime.tokenize)
    if vocab.digest != scene.vocab.digest:
        raise UsageError(message("diagnose.other-tokenizer", name=name))
    mine = [ask for batch in contexts(scene, 0, CONTEXTS) for ask in batch]
    theirs = [otherwise(ask, Arm.SCREEN, mark=MARK + place) for ask in mine]
    answers = await execute(_once(theirs), runtime, store, meter, stage=f"against-{place}")
    pads = np.zeros(len(answers), np.int64)
    return Against(name, tuple(mine), replace(answers, pad=pads))


def _once(asks: Sequence[Ask]) -> Flow[Answers]:
    """Ask these, return their answers."""
    return (yield asks)


def _stored(path: Path, scene: Scene) -> Against:
    """The screen of a stored run: its questions, word for word, and its answers."""
    with Store.read(path) as store:
        if store.manifest.get("tokenizer") != scene.vocab.digest:
            raise UsageError(message("diagnose.other-tokenizer", name=path.name))
        stages = _stages(store)
        asks = [ask for stage in stages for ask in store.asks(stage) if _plain(ask)][:MOST]
        answers = store.answers(asks)
    if not len(answers):
        raise UsageError(message("diagnose.no-screen", name=path.name))
    return Against(path.name, tuple(asks), answers)


def _plain(ask: Ask) -> bool:
    return ask.arm is Arm.SCREEN and bool(ask.prefix) and ask.generate == 1


def _stages(store: Store) -> list[str]:
    """Stages whose questions stand at every residue: needles, or a diagnosis's screen."""
    if store.manifest.get("command") == "diagnose":
        return ["depth", "phase", "precision"]
    return [one["name"] for one in store.manifest.get("stages", []) if one["kind"] == "needle"]


__all__ = ["asked_now", "check_stored", "is_address", "others"]
