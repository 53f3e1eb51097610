"""One measurement from target to verdict: open, survey, place, verify, ask, measure."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from kvphase.catalogue import Message, message
from kvphase.errors import StoreError, UsageError
from kvphase.runs.addresses import is_private
from kvphase.runs.budget import DEFAULT_SECONDS, Budget, BudgetSpent, Meter
from kvphase.runs.ladder import Climb
from kvphase.runs.possible import note_endpoint, notes_of, possible
from kvphase.runs.settings import Settings
from kvphase.runs.stages import Result, Skipped, headline, measured, pooled, read_stages
from kvphase.runs.store import Store
from kvphase.runtimes.adapters import Choice
from kvphase.runtimes.detect import HOST_AND_PORT, open_runtime
from kvphase.tokens import survey
from kvphase.types import Template
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from kvphase.runs.watch import Watcher
    from kvphase.types import About, Verdict, Vocab

T = TypeVar("T")
DEFAULT_TARGET = "toy:w8s4"
RUNS = Path("kvphase-runs")
_SAME = ("runtime", "model", "tokenizer", "template", "seed")
"""Manifest entries that a resumed run must share with the run it resumes."""


@dataclass(frozen=True, slots=True)
class Run:
    """A measurement as it stands in its run file."""

    path: Path
    manifest: dict[str, Any]
    verdict: Verdict
    """Of ``rung``, in the light of the confirmation."""
    totals: dict[str, int | float | None]
    partial: bool
    """The run ended in the middle of something, or goes on elsewhere."""
    rung: Result
    """The part that the verdict rests on."""
    results: tuple[Result, ...]
    """Every part in the order begun."""
    skipped: tuple[Skipped, ...] = ()

    @property
    def confirmation(self) -> Result | None:
        """The part that shifted whole contexts, once it has an answer."""
        return next((r for r in self.results if r.confirmation is not None), None)


def load(path: Path) -> Run:
    """Read a run file and measure what it holds; nothing is asked.

    Raises:
        StoreError: the file cannot be read, or holds no answer yet.
    """
    with Store.read(path) as store, _sound(path):
        if store.manifest.get("command") == "shift":
            raise StoreError(message("shift.not-check", name=path.name))
        if store.manifest.get("command") == "diagnose":
            raise StoreError(message("diagnose.not-check", name=path.name))
        if store.manifest.get("command") == "layout":
            raise StoreError(message("layout.not-check", name=path.name))
        return _measured(store)


@contextlib.contextmanager
def _sound(path: Path) -> Iterator[None]:
    """What a run never writes into its file makes it a damaged one."""
    try:
        yield
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise StoreError(message("run.damaged", name=path.name)) from error


def check(
    target: str | None = None,
    settings: Settings | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    watcher: Watcher | None = None,
    labels: dict[str, str] | None = None,
    choice: Choice | None = None,
) -> Run:
    """Measure one model's phase curve. Synchronous; works inside a running event loop too.

    Args:
        target: A URL or ``toy:NAME``; ``toy:w8s4`` if not given (the recorded one on resume).
        settings: What to ask; defaults that fit the target. On resume: those of the run file.
        out: The run file; a new one under ``kvphase-runs`` if not given.
        resume: Go on with ``out`` instead of starting it.
        budget: Bounds for this sitting; a quarter of an hour if not given, ``Budget()`` for none.
            Rungs that do not fit are left out; a run that spends it ends partial.
        watcher: Shows progress.
        labels: Further facts of the user's own, such as ``{"kv": "q8_0"}``.
        choice: What is known of a server: its kind, the model, a tokenizer, no other users.

    Returns:
        The run; ``run.verdict`` is what was found.

    Raises:
        UsageError: bad input. RuntimeFault: the model cannot be reached or is unusable. Whatever
            was answered before is in the run file.
    """
    return run_sync(
        check_async(
            target,
            settings,
            out=out,
            resume=resume,
            budget=budget,
            watcher=watcher,
            labels=labels,
            choice=choice,
        )
    )


async def check_async(
    target: str | None = None,
    settings: Settings | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    watcher: Watcher | None = None,
    labels: dict[str, str] | None = None,
    choice: Choice | None = None,
) -> Run:
    """As ``check``, for asynchronous callers."""
    meter = Meter(Budget(seconds=DEFAULT_SECONDS) if budget is None else budget)
    start = _begin(target, settings, out, choice, resume=resume, more=budget is not None)
    if isinstance(start, Run):
        return start
    must_be_bounded(start.target, meter.budget)
    async with open_runtime(start.target, choice=start.choice) as runtime:
        settings = possible(start.settings, runtime)
        vocab = await survey(runtime.tokenize)
        template = await runtime.template() if settings.chat else Template()
        manifest = _manifest(runtime.about, vocab, template, settings, labels or {})
        manifest["choice"] = start.choice.as_json()
        path = out or default_path(runtime.about)
        with _opened(path, manifest, resume=start.resume) as store:
            if watcher is not None:
                watcher.opened(runtime.about, path)
            climb = Climb(runtime, store, vocab, template, settings, meter, watcher)
            try:
                await _climb(climb)
                return _measured(store, climb.results)
            finally:
                if not start.resume and not store.totals()["asked"]:
                    store.discard()


async def _climb(climb: Climb) -> None:
    """Climb until the end or until the budget is spent; the run file says which."""
    try:
        await climb.run()
    except BudgetSpent as spent:
        climb.store.note(state="partial", stopped=str(spent))
    else:
        climb.store.note(state="done")
    finally:
        note_endpoint(climb.store, climb.runtime)


def must_be_bounded(target: str, budget: Budget) -> None:
    """Refuse to spend somebody's money without a bound that the user set.

    Raises:
        UsageError: the target is no private address, and neither tokens nor money are bounded.
    """
    remote = target.lower().startswith(("http:", "https:")) or HOST_AND_PORT.fullmatch(target)
    if remote and not is_private(target) and not budget.bounded:
        raise UsageError(message("run.unbounded"))


@dataclass(frozen=True, slots=True)
class _Start:
    """What a sitting begins with."""

    target: str
    settings: Settings
    choice: Choice
    resume: bool


def _begin(
    target: str | None,
    settings: Settings | None,
    out: Path | None,
    choice: Choice | None,
    *,
    resume: bool,
    more: bool,
) -> _Start | Run:
    """How this sitting starts, or the run itself if nothing is left to ask.

    A finished run that left rungs out goes on only when a budget is given (``more``).
    """
    if out is None and resume:
        raise UsageError("--resume needs the run file: --out FILE.kvphase")
    if out is None or not out_exists(out):
        # A run that was killed before its file was made is resumed by starting it.
        return _Start(
            DEFAULT_TARGET if target is None else target,
            settings or Settings(),
            choice or Choice(),
            resume=False,
        )
    if not resume:
        raise StoreError(f"{out.name} exists already; add --resume to go on with it")
    with Store.read(out) as store, _sound(out):
        recorded = store.manifest
        if "dataset" in recorded:
            raise UsageError(message("dataset.again", name=out.name))
        done = recorded.get("state") == "done"
        target, settings = _same_settings(recorded, target, settings, done=done)
        if done and not (more and recorded.get("skipped")):
            return _measured(store)
        choice = (choice or Choice()).like(recorded.get("choice", {}))
    return _Start(target, settings, choice, resume=True)


def out_exists(out: Path) -> bool:
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


def _measured(store: Store, known: Mapping[str, Result] | None = None) -> Run:
    """The run as stored, every part of it measured unless what it found is known already."""
    manifest, known = store.manifest, known or {}
    results = tuple(
        known[stage.name] if stage.name in known else measured(stage, store)
        for stage in read_stages(manifest)
    )
    results = _pooled(results, store)
    head = headline(results)
    if head is None:
        skipped = [Skipped.of_json(one) for one in manifest.get("skipped", [])]
        short = [one.why for one in skipped if _no_room(one.why) and "option" in one.why.values]
        if short:
            # What is short of the same unit can be told which needs least of it.
            alike = [why for why in short if why.key == short[0].key]
            unit = short[0].key.removeprefix("run.no-room-")
            least = min(alike, key=lambda why: why.values.get(unit, why.values["seconds"]))
            raise UsageError(message("run.nothing-fits", why=least, option=least.values["option"]))
        if manifest.get("stopped"):
            raise UsageError(message("run.spent-early", why=manifest["stopped"]))
        raise StoreError(message("run.no-answers", name=store.path.name))
    rung, verdict = head
    totals = store.totals()
    notes = notes_of(manifest, int(totals["asked"] or 0))
    return Run(
        path=store.path,
        manifest=manifest,
        verdict=replace(verdict, notes=verdict.notes + notes),
        totals=totals,
        partial=manifest.get("state") != "done",
        rung=rung,
        results=results,
        skipped=tuple(Skipped.of_json(one) for one in manifest.get("skipped", [])),
    )


def minutes_of(why: str) -> float | None:
    """Minutes that a part left out for want of time would need; None for other reasons."""
    if not _no_room(why) or why.key not in ("run.no-room", "run.no-room-long"):
        return None
    return float(why.values.get("minutes", why.values.get("seconds", 0.0) / 60))


def _no_room(why: str) -> TypeGuard[Message]:
    """Whether a part was left out for want of budget."""
    return isinstance(why, Message) and why.key.startswith("run.no-room")


def _pooled(results: tuple[Result, ...], store: Store) -> tuple[Result, ...]:
    """The results, the one that was confirmed with level and gap from the confirmation as well."""
    shifted = next((r for r in results if r.confirmation is not None), None)
    if shifted is None:
        return results
    name = shifted.stage.name.replace("confirm", "needle")
    return tuple(pooled(r, shifted, store) if r.stage.name == name else r for r in results)


def _same_settings(
    recorded: dict[str, Any], target: str | None, settings: Settings | None, *, done: bool
) -> tuple[str, Settings]:
    """The recorded settings; those given again must agree with them, and so must a toy's name."""
    toy = recorded["target"].startswith("toy:")
    if target is not None and target != recorded["target"] and (toy or target.startswith("toy:")):
        raise UsageError(f"the run file was made with {recorded['target']}; start a new one")
    before = Settings.of_json(recorded["settings"])
    if settings is not None:
        default, asked, kept = (one.as_json() for one in (Settings(), settings, before))
        for name, value in asked.items():
            if value not in (default[name], kept[name]):
                raise UsageError(
                    f"the run file was made with {name} = {kept[name]}, not {value}; "
                    "leave the option out to resume it"
                )
    if target is None and not toy and not done:
        raise UsageError("give the server's address again to resume this run")
    return target or recorded["target"], before


def _manifest(
    about: About, vocab: Vocab, template: Template, settings: Settings, labels: dict[str, str]
) -> dict[str, Any]:
    return {
        "kvphase": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "target": about.target,
        "runtime": about.runtime,
        "build": about.build,
        "model": about.model,
        "quant": about.quant,
        "template": template.digest,
        "thinking": about.thinking,
        "toy": about.toy,
        "tokenizer": vocab.digest,
        "separator": vocab.separator.text,
        "terminator": vocab.terminator.text,
        "labels": labels,
        "settings": settings.as_json(),
        "seed": settings.seed,
        "stages": [],
        "skipped": [],
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


def default_path(about: About) -> Path:
    """A new name for a run file under ``kvphase-runs``.

    Raises:
        UsageError: the folder cannot be made.
    """
    try:
        RUNS.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {RUNS} cannot be made here: {error.strerror}") from error
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in (about.model or about.runtime))
    name = name.strip("-") or "run"
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
