"""One measurement from target to verdict: open, survey, place, verify, ask, measure."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kvphase.errors import StoreError, UsageError
from kvphase.probes.needle import NeedlePlan, needle, plan_needle
from kvphase.runs.budget import Budget, BudgetSpent
from kvphase.runs.execute import Event, execute
from kvphase.runs.settings import Settings, choose
from kvphase.runs.store import Store
from kvphase.runtimes.detect import open_runtime
from kvphase.stats import measure
from kvphase.tokens import survey, verify
from kvphase.types import About, Arm, Template
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kvphase.types import Runtime, Verdict

T = TypeVar("T")
DEFAULT_TARGET = "toy:w8s4"
RUNS = Path("kvphase-runs")
_SAME = ("runtime", "model", "tokenizer", "template", "design", "seed")
"""Manifest entries that a resumed run must share with the run it resumes."""


class Watcher(Protocol):
    """What shows a run's progress."""

    def planned(self, plan: NeedlePlan, about: About, path: Path) -> None:
        """Every position is known and verified, the run file is open; asking begins."""
        ...

    def answered(self, event: Event) -> None:
        """One more answer."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """A measurement as it stands in its run file."""

    path: Path
    manifest: dict[str, Any]
    verdict: Verdict
    totals: dict[str, int | float | None]
    partial: bool


def load(path: Path) -> Run:
    """Read a run file and measure what it holds; nothing is asked.

    Raises:
        StoreError: the file cannot be read, or holds no answer yet.
    """
    with Store.read(path) as store:
        return _measured(store)


def check(
    target: str | None = None,
    settings: Settings | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Measure one model's phase curve. Synchronous; works inside a running event loop too.

    Args:
        target: A URL or ``toy:NAME``; ``toy:w8s4`` if not given (the recorded one on resume).
        settings: What to ask; defaults that fit the target. On resume: those of the run file.
        out: The run file; a new one under ``kvphase-runs`` if not given.
        resume: Go on with ``out`` instead of starting it.
        budget: Bounds for this sitting. A run that spends it ends partial.
        watcher: Shows progress.

    Returns:
        The run; ``run.verdict`` is what was found.

    Raises:
        UsageError: bad input. RuntimeFault: the model cannot be reached or is unusable. Whatever
            was answered before is in the run file.
    """
    return run_sync(
        check_async(target, settings, out=out, resume=resume, budget=budget, watcher=watcher)
    )


async def check_async(
    target: str | None = None,
    settings: Settings | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """As ``check``, for asynchronous callers."""
    start = _begin(target, settings, out, resume=resume)
    if isinstance(start, Run):
        return start
    settings = start.settings
    async with open_runtime(start.target) as runtime:
        plan = await prepare(runtime, settings)
        manifest = _manifest(runtime.about, plan, settings)
        path = out or _default_path(runtime.about)
        with _opened(path, manifest, resume=start.resume) as store:
            if watcher is not None:
                watcher.planned(plan, runtime.about, path)
            verdict = await _ask(store, runtime, plan, budget, watcher)
            return _measured(store, verdict)


@dataclass(frozen=True, slots=True)
class _Start:
    """What a sitting begins with."""

    target: str
    settings: Settings
    resume: bool


def _begin(
    target: str | None, settings: Settings | None, out: Path | None, *, resume: bool
) -> _Start | Run:
    """How this sitting starts, or the run itself if nothing is left to ask."""
    if out is None and resume:
        raise UsageError("--resume needs the run file: --out FILE.kvphase")
    if out is None or not _exists(out):
        # A run that was killed before its file was made is resumed by starting it.
        return _Start(target or DEFAULT_TARGET, settings or Settings(), resume=False)
    if not resume:
        raise StoreError(f"{out.name} exists already; add --resume to go on with it")
    with Store.read(out) as store:
        recorded = store.manifest
        done = recorded.get("state") == "done"
        target, settings = _same_settings(recorded, target, settings, done=done)
        if done:
            return _measured(store)
    return _Start(target, settings, resume=True)


def _exists(out: Path) -> bool:
    """Whether there is a run file at ``out``; anything that can never be one is refused."""
    try:
        if out.is_dir() or not out.name:
            raise UsageError(f"{str(out)!r} is a folder; name a file for the run")
        if not out.parent.is_dir():
            raise UsageError(f"the folder of {out.name} does not exist")
        if out.exists() and not out.is_file():
            raise UsageError(f"{str(out)!r} is not an ordinary file")
        return out.exists()
    except OSError as error:
        raise UsageError(f"the run file cannot be used: {error.strerror}") from error


async def prepare(runtime: Runtime, settings: Settings) -> NeedlePlan:
    """Survey the tokenizer, place every target, and verify the prompts on the model's side.

    Raises:
        UsageError: the tokenizer lacks words or the design does not fit.
        RuntimeFault: the model's tokenizer reads a prompt otherwise than it was composed.
    """
    vocab = await survey(runtime.tokenize)
    template = await runtime.template() if settings.chat else Template()
    design = choose(settings, runtime.about, runtime.limits, template)
    plan = plan_needle(vocab, runtime.limits, design, settings.seed, template)
    await verify(runtime, vocab, template, plan.prompts())
    return plan


async def _ask(
    store: Store, runtime: Runtime, plan: NeedlePlan, budget: Budget | None, watcher: Watcher | None
) -> Verdict | None:
    """The flow's verdict, or None where the budget ended it early."""
    observe = None if watcher is None else watcher.answered
    try:
        verdict = await execute(needle(plan), runtime, store, budget, observe)
    except BudgetSpent as spent:
        store.note(state="partial", stopped=str(spent))
        return None
    store.note(state="done")
    return verdict


def _measured(store: Store, verdict: Verdict | None = None) -> Run:
    """The run as stored; measured again unless its verdict is known already."""
    manifest, totals = store.manifest, store.totals()
    if verdict is None:
        answers = store.answers()
        if not (answers.arm == Arm.SCREEN.value).any():
            raise StoreError(f"{store.path.name} holds no answers yet")
        verdict = measure(
            answers,
            kind=manifest["design"]["kind"],
            modulus=manifest["design"]["modulus"],
            seed=manifest["seed"],
        )
    partial = int(totals["asked"] or 0) < int(manifest["questions"])
    return Run(store.path, manifest, verdict, totals, partial)


def _same_settings(
    recorded: dict[str, Any], target: str | None, settings: Settings | None, *, done: bool
) -> tuple[str, Settings]:
    """The recorded settings; those given again must agree with them, and so must a toy's name."""
    toy = recorded["target"].startswith("toy:")
    if target is not None and target != recorded["target"] and (toy or target.startswith("toy:")):
        raise UsageError(f"the run file was made with {recorded['target']}; start a new one")
    before = Settings(**recorded["settings"])
    if settings is not None:
        default, asked, kept = asdict(Settings()), asdict(settings), asdict(before)
        for name, value in asked.items():
            if value not in (default[name], kept[name]):
                raise UsageError(
                    f"the run file was made with {name} = {kept[name]}, not {value}; "
                    "leave the option out to resume it"
                )
    if target is None and not toy and not done:
        raise UsageError("give the server's address again to resume this run")
    return target or recorded["target"], before


def _manifest(about: About, plan: NeedlePlan, settings: Settings) -> dict[str, Any]:
    return {
        "kvphase": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "target": about.target,
        "runtime": about.runtime,
        "build": about.build,
        "model": about.model,
        "quant": about.quant,
        "template": plan.template.digest,
        "thinking": about.thinking,
        "toy": about.toy,
        "tokenizer": plan.vocab.digest,
        "separator": plan.vocab.separator.text,
        "terminator": plan.vocab.terminator.text,
        "labels": {},
        "settings": asdict(settings),
        "design": plan.design.as_json(),
        "seed": settings.seed,
        "questions": plan.questions,
        "balance": asdict(plan.balance),
        "state": "asking",
    }


def _opened(path: Path, manifest: dict[str, Any], *, resume: bool) -> Store:
    if not resume:
        return Store.create(path, manifest)
    store = Store.resume(path)
    before = store.manifest
    for name in _SAME:
        if before[name] != manifest[name]:
            store.close()
            raise UsageError(
                f"{path.name} was measured with another {name}; start a new run for this one"
            )
    return store


def _default_path(about: About) -> Path:
    try:
        RUNS.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {RUNS} cannot be made here: {error.strerror}") from error
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in (about.model or about.runtime))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = RUNS / f"{name[:60]}-{stamp}.kvphase"
    for again in range(2, 100):
        if not path.exists():
            break
        path = RUNS / f"{name[:60]}-{stamp}-{again}.kvphase"
    return path


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where a loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    result: list[T] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - handed on to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=target, name="kvphase")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
