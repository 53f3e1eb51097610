"""A shift run from prompts to verdict: open, place, ask, judge; kept in one run file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import StoreError, UsageError
from kvphase.probes.shift import ShiftPlan, shift
from kvphase.probes.shifted import Found, judged
from kvphase.runs.budget import DEFAULT_SECONDS, Budget, BudgetSpent, Meter
from kvphase.runs.check import default_path, must_be_bounded, out_exists, run_sync
from kvphase.runs.execute import complete, execute
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
    from kvphase.runs.shift_source import Source
    from kvphase.types import About, Answers, Runtime

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
    parts: tuple[tuple[str, int, int, int], ...]
    """(name, requests, tokens evaluated, tokens from the cache)."""
    prefill_rate: float
    """Prompt tokens a second."""
    seconds: tuple[float, ...]
    """Of each part."""


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
    async with open_runtime(target) as runtime:
        plan = await plan_shift(runtime, sources, options)
        manifest = _manifest(runtime, sources, plan, options)
        path = out or default_path(runtime.about)
        store = _resumed(path, manifest) if there else Store.create(path, manifest)
        store.grade = grader([task.match for task in plan.tasks])
        with store:
            watching.opened(runtime.about, path, plan)
            try:
                await execute(shift(plan), runtime, store, meter, watching.answered, stage=STAGE)
                store.note(state="done")
            except BudgetSpent as spent:
                store.note(state="partial", stopped=str(spent))
            finally:
                if not there and not store.totals()["asked"]:
                    store.discard()
            if runtime.traffic is not None:
                store.note(traffic=runtime.traffic)
            return _measured(store)


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


def estimate_shift(sources: Sequence[Source], target: str, options: Options) -> Estimate:
    """What a run would take: every prompt placed, the first one asked once as it is."""
    return run_sync(_estimated(sources, target, options))


async def _estimated(sources: Sequence[Source], target: str, options: Options) -> Estimate:
    async with open_runtime(target) as runtime:
        plan = await plan_shift(runtime, sources, options)
        reply = await complete(plan.plain()[0], runtime)
        tokens = reply.prefilled or len(plan.tasks[0].plain.ids)
        rate = max(tokens, 1) / max(reply.seconds, 1e-4)
        parts = [("plain", plan.plain()), ("first", [*plan.screen(0, plan.first), *plan.cold()])]
        if not plan.full:
            parts.append(("more", plan.screen(plan.first, 2 * plan.first)))
        parts.append(("tail", plan.tail()))
        rows = [(name, *_cost(asks)) for name, asks in parts if asks]
        seconds = tuple(evaluated / rate for _, _, evaluated, _ in rows)
        return Estimate(runtime.about, tuple(rows), rate, seconds)


def _cost(asks: Sequence[Any]) -> tuple[int, int, int]:
    """Requests, tokens evaluated and tokens from the cache."""
    evaluated, cached, last = 0, 0, None
    for ask in asks:
        if ask.prefix and ask.prefix == last:
            cached += len(ask.prefix)
            evaluated += len(ask.suffix)
        else:
            evaluated += len(ask.prompt)
        evaluated += ask.generate
        last = ask.prefix
    return len(asks), evaluated, cached
