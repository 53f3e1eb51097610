"""Two thousand questions in a storm of faults: each answered once, none lost, memory flat."""

from __future__ import annotations

import asyncio
import gc
import resource
from typing import TYPE_CHECKING

import pytest
from scipy import stats

from kvphase.errors import RuntimeFault
from kvphase.runs import patience
from kvphase.runs.execute import execute
from kvphase.runs.store import Store
from kvphase.runtimes.detect import open_runtime
from kvphase.runtimes.toy import ToyRuntime, ToyWords
from kvphase.serve import front
from kvphase.serve.faults import RESIDUES, draw
from kvphase.testing import double
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.types import Answers, Flow

pytestmark = pytest.mark.slow

QUESTIONS, CONTEXTS, BATCH = 2000, 10, 50
PASSING = "5xx=0.01,429=0.01,reset=0.01,half-json=0.01"
"""Faults after which a question is asked again."""
TELLING = "empty=0.01,random=0.01,wrong-on-hit=0.01,prefill-split=0.01"
"""Faults whose answers are answers."""
SHARE = 0.01
"""Of the questions that each of them takes."""
BREAKS = 4 * SHARE
"""Of the requests, at most: the passing faults together."""
RARE = 1e-6
"""Chance that a count lies outside its bounds; that of five standard errors is about as small."""
SITTINGS = 60
"""A prefill that breaks ends a sitting; about one in 25 does, and there are few of them."""
KEPT = 0.5
"""Objects that may stay behind after each answer; an answer with its scores is dozens of them."""
KILOBYTES = 2
"""By which the process may grow for each answer: less than a request and its answer take."""


def plan() -> list[Ask]:
    """Questions at records of ten contexts."""
    words = ToyWords.load()
    keys, values = words.encode(" cat dog horse cow pig sheep goat duck"), words.values
    (colon, semicolon, filler) = words.encode(":; and")
    asks: list[Ask] = []
    for number in range(QUESTIONS):
        context, which = number * CONTEXTS // QUESTIONS, number % len(keys)
        prefix = [words.bos, *[filler] * context]
        for place, key in enumerate(keys):
            prefix += [key, colon, values[(place * 7 + context) % len(values)], semicolon]
        expected = words.decode([values[(which * 7 + context) % len(values)]])
        ask = Ask(
            id=f"{number}",
            prefix=tuple(prefix),
            suffix=(keys[which], colon),
            target=1 + context + 4 * which,
            expected=expected,
            candidates=(expected,),
            arm=Arm.SCREEN,
            item=number,
            block=context,
            context=context,
            pad=context,
        )
        asks.append(ask)
    return asks


def flow(asks: Sequence[Ask], sizes: list[tuple[int, int]]) -> Flow[int]:
    """All asks in batches; ``sizes`` gets objects and peak kilobytes after each."""
    seen = 0
    for first in range(0, len(asks), BATCH):
        answers: Answers = yield asks[first : first + BATCH]
        seen += len(answers)
        del answers
        gc.collect()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sizes.append((len(gc.get_objects()), peak))
    return seen


def chosen(ask: Ask) -> bool:
    """Whether a fault of `TELLING` takes this prompt when its prefix is cached, by its draw."""
    hit, split = (draw(0, fault, *ask.prompt) < SHARE for fault in ("hit", "split"))
    return hit or (split and len(ask.prefix) % RESIDUES != 0)


async def undisturbed(asks: Sequence[Ask]) -> list[str]:
    async with ToyRuntime.load("full") as runtime:
        return [(await runtime.complete(ask)).text for ask in asks]


def weather(path: Path, asks: Sequence[Ask], faults: str) -> list[tuple[int, int]]:
    """Ask everything, going on after every stop; what was in use after each batch."""
    sizes: list[tuple[int, int]] = []

    async def sitting(store: Store, url: str) -> int:
        async with open_runtime(url) as runtime:
            return await execute(flow(asks, sizes), runtime, store)

    with double("full", faults=faults) as server:
        for number in range(SITTINGS):
            opened = Store.resume(path) if number else Store.create(path, {"seed": 1})
            with opened as store:
                try:
                    assert asyncio.run(sitting(store, server.url)) == QUESTIONS
                except RuntimeFault:
                    continue
            return sizes
    raise AssertionError("the storm did not end")


def texts(path: Path) -> list[tuple[str, str]]:
    """Every answer with its ask's id, in the order of asking."""
    with Store.read(path) as store:
        rows = store._rows(
            "SELECT asks.id, text FROM asks JOIN answers ON ask_id = asks.id ORDER BY asks.ordinal"
        )
    return [(str(name), str(text)) for name, text in rows]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(front, "RETRY_SECONDS", 0)


def test_faults_that_pass_change_nothing(tmp_path: Path) -> None:
    asks = plan()
    sizes = weather(tmp_path / "a.kvphase", asks, PASSING)
    expected = asyncio.run(undisturbed(asks))
    assert texts(tmp_path / "a.kvphase") == [
        (ask.id, text) for ask, text in zip(asks, expected, strict=True)
    ]
    (objects, peak), (more, higher) = sizes[-QUESTIONS // BATCH // 2], sizes[-1]
    assert more - objects < KEPT * QUESTIONS / 2, sizes
    assert higher - peak < KILOBYTES * QUESTIONS / 2, sizes


def test_every_fault_at_once_loses_nothing(tmp_path: Path) -> None:
    asks = plan()
    weather(tmp_path / "a.kvphase", asks, f"{PASSING},{TELLING}")
    got = texts(tmp_path / "a.kvphase")
    assert [name for name, _ in got] == [ask.id for ask in asks]
    right = asyncio.run(undisturbed(asks))
    rows = list(zip(asks, (text for _, text in got), right, strict=True))
    # One answer in a hundred is empty and one is another value. Those strike requests by chance, so
    # the counts are binomial: 20 each, five standard errors are 22, the bounds 2 and 45.
    others = [(text, true) for ask, text, true in rows if not chosen(ask)]
    low, high = stats.binom.interval(1 - RARE, len(others), SHARE)
    assert low <= sum(text == "" for text, _ in others) <= high
    assert low <= sum(text not in ("", true) for text, true in others) <= high
    # Wrong hits and splits take prompts, each time they are asked; not where an answer broke off
    # (one in 25 or so) and the whole prompt was found when it was asked again.
    taken = [text != true for ask, text, true in rows if chosen(ask)]
    low, _ = stats.binom.interval(1 - RARE, len(taken), 1 - BREAKS)
    assert taken
    assert sum(taken) >= low
