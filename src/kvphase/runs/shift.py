"""A shift run from prompts to verdict: open, place, ask, judge; kept in one run file."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import StoreError, UsageError
from kvphase.probes.shift import ShiftPlan, shift
from kvphase.probes.shifted import Found, judged
from kvphase.runs.budget import DEFAULT_SECONDS, Budget, BudgetSpent, Meter
from kvphase.runs.check import default_path, must_be_bounded, out_exists, run_sync
from kvphase.runs.execute import complete, execute
from kvphase.runs.shift_cost import (
    bounded,
    must_fit,
    parts_of,
    price_of,
    speed_of,
    timing,
)
from kvphase.runs.shift_grade import grader
from kvphase.runs.shift_plan import Options, plan_shift
from kvphase.runs.shift_source import digest_of
from kvphase.runs.store import Store
from kvphase.runtimes.detect import open_runtime
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvphase.runs.execute import Event
    from kvphase.runs.shift_cost import Price, Speed
    from kvphase.runs.shift_source import Source
    from kvphase.types import About, Answers, Ask, Flow, Runtime

STAGE = "shift"
_SAME = ("runtime", "model", "prompts", "placed")
"""Manifest entries that a resumed run must share with the run it resumes."""


@dataclass(frozen=True, slots=True)
class ShiftRun:
    """A shift run as it stands in its run file."""

    path: Path
    manifest: dict[str, Any]
    plan: dict[str, Any]
    """As `ShiftPlan.as_json`."""
    answers: Answers
    found: Found
    totals: dict[str, int | float | None]
    partial: bool


@dataclass(frozen=True, slots=True)
class Watching:
    """Who is told what while a run goes on."""

    opened: Callable[[About, Path, ShiftPlan], None] = lambda _about, _path, _plan: None
    answered: Callable[[Event], None] | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a shift run would take, from one prompt that was asked."""

    about: About
    parts: tuple[tuple[str, Price], ...]
    """As `kvphase.runs.shift_cost.parts_of` names them."""
    speed: Speed
    lacking: str | None
    """Why the budget does not hold what is asked in any case; None if it does."""


def is_shift(path: Path) -> bool:
    """Whether a run file is that of a shift run.

    Raises:
        StoreError: it cannot be read.
    """
    with Store.read(path) as store:
        return bool(store.manifest.get("command") == "shift")


def load_shift(path: Path) -> ShiftRun:
    """Read the run file of a shift run and judge what it holds; nothing is asked.

    Raises:
        StoreError: it cannot be read or is of another command.
    """
    with Store.read(path) as store:
        return _measured(store)


def run_shift(
    sources: Sequence[Source],
    target: str,
    options: Options | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    watching: Watching | None = None,
) -> ShiftRun:
    """Ask prompts at several shifts and judge the answers.

    Args:
        sources: The prompts.
        target: A URL or ``toy:NAME``.
        options: Seed, extent and moves.
        out: The run file; a new one under ``kvphase-runs`` if not given.
        resume: Go on with ``out``.
        budget: Bounds for this sitting; a quarter of an hour if not given.
        watching: Shows progress.

    Raises:
        UsageError: bad input. RuntimeFault: the model cannot be reached or is unusable; whatever
            was answered before is in the run file.
    """
    return run_sync(
        _run(sources, target, options or Options(), out, resume, budget, watching or Watching())
    )


async def _run(
    sources: Sequence[Source],
    target: str,
    options: Options,
    out: Path | None,
    resume: bool,
    budget: Budget | None,
    watching: Watching,
) -> ShiftRun:
    meter = Meter(Budget(seconds=DEFAULT_SECONDS) if budget is None else budget)
    if resume and out is None:
        raise UsageError(message("shift.resume-out"))
    there = out is not None and out_exists(out)
    if there and not resume:
        raise StoreError(message("shift.exists", name=out.name if out else ""))
    must_be_bounded(target, meter.budget)
    async with open_runtime(target, choice=options.choice) as runtime:
        plan = await plan_shift(runtime, sources, options)
        if not there:
            must_fit(plan, (), meter.left(), None)
        manifest = _manifest(runtime, sources, plan, options)
        path = out or default_path(runtime.about)
        store = _resumed(path, manifest) if there else Store.create(path, manifest)
        store.grade = grader([task.match for task in plan.tasks])
        with store:
            watching.opened(runtime.about, path, plan)
            try:
                await _ask(plan, runtime, store, meter, watching, again=there)
                store.note(state="done")
            except BudgetSpent as spent:
                if not store.totals()["asked"]:
                    raise UsageError(message("run.spent-early", why=str(spent))) from spent
                store.note(state="partial", stopped=str(spent))
            finally:
                if runtime.traffic is not None:
                    store.note(traffic=runtime.traffic)
                if not there and not store.totals()["asked"]:
                    store.discard()
            return _measured(store)


async def _ask(
    plan: ShiftPlan,
    runtime: Runtime,
    store: Store,
    meter: Meter,
    watching: Watching,
    *,
    again: bool,
) -> None:
    """Time the first questions, refuse what cannot fit, ask.

    A run that is gone on with is never refused: it gets as far as its budget reaches.

    Raises:
        BudgetSpent: what is left is not enough for the next part; nothing of that was begun.
        UsageError: a new run does not fit; what was asked to see that is kept.
    """

    async def answer(flow: Flow[Answers]) -> None:
        await execute(flow, runtime, store, meter, watching.answered, stage=STAGE)

    first, reads = timing(plan), []
    for ask in first:
        asked, read, began = meter.questions, meter.prefilled, time.perf_counter()
        await answer(_once([ask]))
        if meter.questions > asked:
            reads.append((meter.prefilled - read, time.perf_counter() - began))
    speed = None
    if len(reads) == len(first):
        speed = speed_of(reads, len(first[-1].prefix))
        meter.prefill_rate = speed.rate
    if again:
        await answer(shift(plan))
        return
    try:
        must_fit(plan, first, meter.left(), speed)
    except UsageError:
        store.note(state="partial")
        raise
    await answer(bounded(shift(plan), plan, meter.left, speed))


def _once(asks: Sequence[Ask]) -> Flow[Answers]:
    """Ask these; their answers are the result."""
    return (yield list(asks))


def _manifest(
    runtime: Runtime, sources: Sequence[Source], plan: ShiftPlan, options: Options
) -> dict[str, Any]:
    about = runtime.about
    return {
        "command": "shift",
        "kvphase": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "target": about.target,
        "runtime": about.runtime,
        "build": about.build,
        "model": about.model,
        "quant": about.quant,
        "template": about.template,
        "thinking": about.thinking,
        "toy": about.toy,
        "labels": {},
        "seed": options.seed,
        "prompts": digest_of(sources),
        "placed": _placed_digest(plan),
        "shift": plan.as_json(),
        "stages": [],
        "skipped": [],
        "state": "asking",
    }


def _placed_digest(plan: ShiftPlan) -> str:
    """Of every ask that may be sent: another tokenizer or template places them otherwise."""
    import hashlib

    asks = [*plan.plain(), *plan.screen(0, 2 * plan.first), *plan.tail()]
    text = "|".join(sorted(ask.id for ask in asks))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _resumed(path: Path, manifest: dict[str, Any]) -> Store:
    store = Store.resume(path)
    before = store.manifest
    if before.get("command") != "shift":
        store.close()
        raise UsageError(message("shift.other-command", name=path.name))
    for name in _SAME:
        if before.get(name) != manifest[name]:
            store.close()
            raise UsageError(message(f"shift.other-{name}", name=path.name))
    return store


def _measured(store: Store) -> ShiftRun:
    manifest = store.manifest
    if manifest.get("command") != "shift":
        raise StoreError(message("shift.other-command", name=store.path.name))
    answers = store.answers()
    if not len(answers):
        why = manifest.get("stopped")
        if why:
            raise UsageError(message("run.spent-early", why=why))
        raise StoreError(message("run.no-answers", name=store.path.name))
    plan = manifest["shift"]
    return ShiftRun(
        path=store.path,
        manifest=manifest,
        plan=plan,
        answers=answers,
        found=judged(plan, answers),
        totals=store.totals(),
        partial=manifest.get("state") != "done",
    )


def estimate_shift(
    sources: Sequence[Source], target: str, options: Options, budget: Budget | None = None
) -> Estimate:
    """What a run would take: every prompt placed, the first one asked to time it; nothing is kept.

    Args:
        sources: As for `run_shift`.
        target: As for `run_shift`.
        options: As for `run_shift`.
        budget: As for `run_shift`; what is asked for the estimate does not count.
    """
    return run_sync(_estimated(sources, target, options, budget or Budget(seconds=DEFAULT_SECONDS)))


async def _estimated(
    sources: Sequence[Source], target: str, options: Options, budget: Budget
) -> Estimate:
    must_be_bounded(target, budget)
    async with open_runtime(target, choice=options.choice) as runtime:
        plan = await plan_shift(runtime, sources, options)
        asks, meter, reads = timing(plan), Meter(budget), []
        for ask in asks:
            reply, read = await complete(ask, runtime), meter.prefilled
            meter.add(ask, reply)
            reads.append((meter.prefilled - read, reply.seconds))
        speed = speed_of(reads, len(asks[-1].prefix))
        why = None
        try:
            must_fit(plan, (), budget, speed)
        except UsageError as error:
            why = error.args[0]
        parts = tuple((name, price_of(asks, speed)) for name, asks in parts_of(plan))
        return Estimate(runtime.about, parts, speed, why)
