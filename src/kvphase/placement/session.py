"""A layout from a user's files to its result: open the targets, place, and ask where wanted."""

from __future__ import annotations

import re
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import StoreError, UsageError
from kvphase.placement.found import Layout, Wanted
from kvphase.placement.grid import Grid
from kvphase.placement.layout import lay_out
from kvphase.placement.side import TokenizerOnly
from kvphase.placement.verify import Verified, questions, verify
from kvphase.runs.budget import DEFAULT_SECONDS, Budget, BudgetSpent, Meter
from kvphase.runs.check import default_path, must_be_bounded, out_exists, run_sync
from kvphase.runs.execute import execute
from kvphase.runs.shift_grade import grader
from kvphase.runs.store import Store
from kvphase.runtimes.detect import open_runtime
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from kvphase.placement.change import Way
    from kvphase.placement.profile import Profile
    from kvphase.placement.prompt import Prompt
    from kvphase.runs.execute import Event
    from kvphase.types import About, Runtime

STAGE = "layout"
_COMPRESSION = re.compile(r"window (\d+), stride (\d+)")


@dataclass(frozen=True, slots=True)
class Request:
    """What the user said."""

    tokenizer: Path | None = None
    target: str | None = None
    """Tokenizes."""
    verify: str | None = None
    """Is asked; tokenizes as well."""
    stride: int | None = None
    window: int | None = None
    profile: Profile | None = None
    way: Way = "pad"
    seed: int = 0
    out: Path | None = None
    resume: bool = False
    budget: Budget | None = None
    answered: Callable[[Event], None] | None = field(default=None, compare=False)
    """Told of each answer."""


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that a layout found."""

    about: About
    """Whose tokenizer counted."""
    wanted: Wanted
    layouts: tuple[Layout, ...]
    verified: Verified | None
    """None where nothing was asked."""
    path: Path | None
    """The run file of the questions."""
    spent: str | None = None
    """Why the questions ended early."""


def run_layout(prompts: Sequence[Prompt], request: Request) -> Session:
    """Lay out every prompt, and ask both versions where that is wanted.

    Raises:
        UsageError: bad input. RuntimeFault: a target cannot be reached or is unusable.
    """
    return run_sync(_run(prompts, request))


async def _run(prompts: Sequence[Prompt], request: Request) -> Session:
    meter = Meter(Budget(seconds=DEFAULT_SECONDS) if request.budget is None else request.budget)
    if request.verify is not None:
        must_be_bounded(request.verify, meter.budget)
    async with _opened(request) as runtime:
        wanted = wanted_of(request, runtime.about)
        layouts = tuple([await lay_out(runtime, prompt, wanted) for prompt in prompts])
        await _must_agree(request, layouts)
        if request.verify is None or not any(layout.differs for layout in layouts):
            return Session(runtime.about, wanted, layouts, None, None)
        return await _asked(runtime, wanted, layouts, request, meter)


@asynccontextmanager
async def _opened(request: Request) -> AsyncIterator[Runtime]:
    """The target that is asked if there is one, else the one that tokenizes, else the file."""
    target = request.verify or request.target
    if target is not None:
        async with open_runtime(target) as runtime:
            yield runtime
    elif request.tokenizer is not None:
        yield TokenizerOnly(request.tokenizer)
    else:
        raise UsageError(message("layout.no-tokenizer"))


async def _must_agree(request: Request, layouts: Sequence[Layout]) -> None:
    """A file or a second target that was named as well must read the prompts alike."""
    if request.target is not None and request.target != (request.verify or request.target):
        async with open_runtime(request.target) as other:
            await _same_ids(other, layouts)
    if request.tokenizer is not None and (request.verify or request.target) is not None:
        await _same_ids(TokenizerOnly(request.tokenizer), layouts)


async def _same_ids(other: Runtime, layouts: Sequence[Layout]) -> None:
    from kvphase.runs.shift_place import Rendered

    plain = [layout for layout in layouts if layout.source.body is None]
    if not plain:
        return
    got = await Rendered(other).ids([layout.source for layout in plain])
    for ids, layout in zip(got, plain, strict=True):
        if ids != layout.ids:
            raise UsageError(message("layout.disagree", name=layout.name))


def wanted_of(request: Request, about: About) -> Wanted:
    """Grid and profile from what was said, else from the profile, else from the target itself.

    Raises:
        UsageError: sizes are odd, or do not go with the profile's period.
    """
    profile = request.profile
    stride, window, full = request.stride, request.window, False
    if window is not None and stride is None and (profile is None or profile.period is None):
        raise UsageError(message("layout.window-alone"))
    if profile is not None and profile.period is not None:
        if stride is not None and stride % profile.period and profile.period % stride:
            period = profile.period
            raise UsageError(message("layout.other-period", period=period, stride=stride))
        own = stride is None or stride == profile.period
        stride = profile.period if stride is None else stride
        window = profile.window if window is None and own else window
    said = _COMPRESSION.fullmatch(about.extra.get("compression", ""))
    if stride is None and profile is None:
        full = about.extra.get("compression", "").startswith("none")
    # A target that tells its own sizes is believed where they go with what is known already.
    if said is not None and stride in (None, int(said[2])):
        stride = int(said[2])
        window = int(said[1]) if window is None else window
    grid = None if stride is None else Grid.of(stride, window)
    return Wanted(grid, profile, full, window is None, request.way, request.seed)


async def _asked(
    runtime: Runtime,
    wanted: Wanted,
    layouts: tuple[Layout, ...],
    request: Request,
    meter: Meter,
) -> Session:
    asked = await questions(runtime, layouts)
    path = request.out or default_path(runtime.about)
    there = out_exists(path)
    if there and not request.resume:
        raise StoreError(message("layout.exists", name=path.name))
    manifest = _manifest(runtime.about, layouts, request, [ask.id for ask in asked.asks])
    store = _resumed(path, manifest) if there else Store.create(path, manifest)
    store.grade = grader(asked.matches)
    verified, spent = None, None
    with store:
        try:
            flow = verify(asked)
            verified = await execute(flow, runtime, store, meter, request.answered, stage=STAGE)
            store.note(state="done")
        except BudgetSpent as stop:
            from kvphase.placement.verify import compared

            spent = str(stop)
            store.note(state="partial", stopped=spent)
            answers = store.answers()
            verified = compared(answers) if len(answers) else None
        finally:
            if not there and not store.totals()["asked"]:
                store.discard()
    return Session(runtime.about, wanted, layouts, verified, path, spent)


def _manifest(
    about: About, layouts: Sequence[Layout], request: Request, asks: Sequence[str]
) -> dict[str, Any]:
    import hashlib

    named = ("target", "runtime", "build", "model", "quant", "template", "thinking", "toy")
    return {
        "command": "layout",
        "kvphase": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        **{name: getattr(about, name) for name in named},
        "labels": {},
        "seed": request.seed,
        "way": request.way,
        "asks": hashlib.blake2b("|".join(asks).encode(), digest_size=12).hexdigest(),
        "layout": [
            {
                "name": layout.name,
                "tokens": layout.total,
                "tokens_after": layout.total_after,
                "pads": [[put.at, put.size] for put in layout.puts],
                "starts": [span.before.start for span in layout.spans],
                "starts_after": [
                    None if span.after is None else span.after.start for span in layout.spans
                ],
            }
            for layout in layouts
        ],
        "stages": [],
        "skipped": [],
        "state": "asking",
    }


def _resumed(path: Path, manifest: dict[str, Any]) -> Store:
    store = Store.resume(path)
    before = store.manifest
    if any(before.get(name) != manifest[name] for name in ("command", "runtime", "model", "asks")):
        store.close()
        raise UsageError(message("layout.other-run", name=path.name))
    return store


__all__ = ["Request", "Session", "run_layout", "wanted_of"]
