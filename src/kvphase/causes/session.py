"""A diagnosis from target to findings: open, survey, ask cause after cause, keep everything."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Message, message
from kvphase.causes import CAUSES
from kvphase.causes.base import Cause, Finding, missing
from kvphase.causes.minimal import Pair, minimal, top
from kvphase.causes.others import check_stored, others
from kvphase.causes.planner import contexts_for, shortage
from kvphase.causes.scene import LONGEST, OWN, Scene
from kvphase.causes.stored import findings_json, findings_of, pair_json, pair_of
from kvphase.causes.talk import prepared
from kvphase.errors import KvphaseError, StoreError, UsageError
from kvphase.runs.budget import DEFAULT_SECONDS, Budget, BudgetSpent, Meter
from kvphase.runs.check import default_path, must_be_bounded, out_exists, run_sync
from kvphase.runs.estimate import timed
from kvphase.runs.execute import execute
from kvphase.runs.shift_plan import Options as ShiftOptions
from kvphase.runs.shift_plan import plan_shift
from kvphase.runs.shift_source import Wanted, read_sources
from kvphase.runs.store import Store
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.causes.talk import Talk
    from kvphase.runs.estimate import Rate
    from kvphase.runs.execute import Observer
    from kvphase.runtimes.adapters import Choice
    from kvphase.types import About, Ask, Runtime, Template, Vocab

_QUESTION = 2
"""Tokens of a user's prompt that are evaluated behind a cached prefix."""
MOST_OWN = 16
"""Shifts of the user's own prompt that are asked."""
MINIMAL = "minimal"
"""Stage of the asks that shrink a pair."""
_SAME = ("runtime", "model", "tokenizer", "seed", "longest")
"""Manifest entries that a resumed diagnosis must share with what it resumes."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is diagnosed, and how far."""

    seed: int = 0
    longest: int = LONGEST
    """Prompt tokens that are tried at most."""
    against: tuple[str, ...] = ()
    """Run files and addresses to compare with."""
    prompt: Path | None = None
    """The user's own prompt, asked in every way too."""
    choice: Choice | None = None
    """What is known of a server: its kind, the model, a tokenizer, no other users."""
    contexts: int | None = None
    """Contexts of the screen at most; as many as the target is worth if not given."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A diagnosis as it stands in its run file."""

    path: Path
    manifest: dict[str, Any]
    findings: tuple[Finding, ...]
    """In the order of the causes."""
    pair: Pair | None
    totals: dict[str, int | float | None]
    partial: bool


class Watching:
    """Who is told what while a diagnosis goes on; does nothing by itself."""

    answered: Observer | None = None

    def opened(self, about: About, path: Path) -> None:
        """The run file is open."""

    def begins(self, cause: str) -> None:
        """A cause is about to be tested."""

    def ends(self, finding: Finding) -> None:
        """A cause is done."""


def diagnose(
    target: str,
    options: Options | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    watching: Watching | None = None,
) -> Diagnosis:
    """Find out what makes an endpoint answer wrong. Synchronous; works in a running loop too.

    Args:
        target: A URL or ``toy:NAME``.
        options: What to compare with, and how far to go.
        out: The run file; a new one under ``kvphase-runs`` if not given.
        resume: Go on with ``out``.
        budget: Bounds for this sitting; a quarter of an hour if not given.
        watching: Shows progress.

    Raises:
        UsageError: bad input. RuntimeFault: the model cannot be reached or is unusable; whatever
            was answered before is in the run file.
    """
    return run_sync(
        _diagnosed(target, options or Options(), out, resume, budget, watching or Watching())
    )


def load_diagnosis(path: Path) -> Diagnosis:
    """Read the run file of a diagnosis; nothing is asked.

    Raises:
        StoreError: it cannot be read, or is of another command.
    """
    with Store.read(path) as store:
        return _read(store)


async def _diagnosed(
    target: str,
    options: Options,
    out: Path | None,
    resume: bool,
    budget: Budget | None,
    watching: Watching,
) -> Diagnosis:
    meter = Meter(Budget(seconds=DEFAULT_SECONDS) if budget is None else budget)
    if resume and out is None:
        raise UsageError(message("shift.resume-out"))
    there = out is not None and out_exists(out)
    if there and not resume:
        raise StoreError(message("shift.exists", name=out.name if out else ""))
    must_be_bounded(target, meter.budget)
    async with open_runtime(target, choice=options.choice) as runtime:
        return await diagnose_runtime(runtime, options, out, meter, watching, there=there)


async def diagnose_runtime(
    runtime: Runtime,
    options: Options,
    out: Path | None,
    meter: Meter,
    watching: Watching,
    *,
    there: bool = False,
) -> Diagnosis:
    """Diagnose an opened runtime; see `diagnose`.

    Args:
        runtime: Opened already.
        options: As for `diagnose`.
        out: As for `diagnose`.
        meter: What this sitting may use.
        watching: Shows progress.
        there: ``out`` exists and is gone on with.
    """
    vocab = await survey(runtime.tokenize)
    template, talk = await _chat(runtime, vocab)
    scene = Scene(
        runtime.about,
        runtime.limits,
        vocab,
        seed=options.seed,
        longest=options.longest,
        template=template,
        talk=talk,
        own=await _own(runtime, options),
    )
    scene.check()
    check_stored(options.against, scene)
    manifest = _manifest(runtime.about, vocab, options)
    path = out or default_path(runtime.about)
    store = _resumed(path, manifest) if there else Store.create(path, manifest)
    with store:
        watching.opened(runtime.about, path)
        try:
            await _Sitting(runtime, store, meter, watching, options).run(scene)
        finally:
            if not there and not store.totals()["asked"]:
                store.discard()
        return _read(store)


async def _own(runtime: Runtime, options: Options) -> tuple[Ask, ...]:
    """The user's own prompt behind 0 to 15 more tokens; its last two tokens are the question."""
    if options.prompt is None:
        return ()
    sources = read_sources(str(options.prompt), Wanted())
    plan = await plan_shift(runtime, sources, ShiftOptions(options.seed, full=True))
    asks = sorted(plan.screen(0, plan.first), key=lambda ask: (ask.item, len(ask.prompt)))
    return tuple(
        replace(
            ask,
            prefix=ask.prompt[:-_QUESTION],
            suffix=ask.prompt[-_QUESTION:],
            context=OWN,
            item=number,
            pad=0,
            question=len(ask.prompt) - _QUESTION,
            generate=1,
        )
        for number, ask in enumerate(asks[:MOST_OWN])
    )


async def _chat(runtime: Runtime, vocab: Vocab) -> tuple[Template | None, Talk | None]:
    """The chat template and the requests made with it; None for what there is not."""
    try:
        template = await runtime.template()
    except KvphaseError:
        return None, None
    if not template.tail:
        return None, None
    render = getattr(runtime, "render", None)
    if render is None or runtime.about.toy:
        return template, None

    async def tokenize(texts: Sequence[str]) -> list[list[int]]:
        return await runtime.tokenize(texts, special=True)

    try:
        return template, await prepared(render, tokenize, vocab, runtime.limits.bos)
    except UsageError:
        return template, None


class _Sitting:
    """One sitting of a diagnosis: cause after cause, until the budget ends."""

    def __init__(
        self, runtime: Runtime, store: Store, meter: Meter, watching: Watching, options: Options
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._meter = meter
        self._watching = watching
        self._options = options
        self._findings: list[Finding] = []

    async def run(self, scene: Scene) -> None:
        """Test every cause that can be tested and fits."""
        rate = await timed(self._runtime, scene.vocab, self._meter)
        self._meter.prefill_rate = rate.prefill
        spent: BudgetSpent | None = None
        for cause in CAUSES:
            scene = replace(
                scene, found=frozenset(f.cause for f in self._findings if f.status == "found")
            )
            if spent is None:
                try:
                    finding = await self._tested(cause, scene, rate)
                except BudgetSpent as stop:
                    spent = stop
            if spent is not None:
                finding = _untested(cause, message("diagnose.needs.more", why=_said(spent)))
            self._findings.append(finding)
            self._store.note(findings=findings_json(self._findings))
            self._watching.ends(finding)
        pair = None if spent is not None else await self._minimal(scene)
        self._store.note(pair=pair_json(pair), traffic=self._runtime.traffic)
        if spent is None:
            self._store.note(state="done")
        else:
            self._store.note(state="partial", stopped=str(spent))

    async def _tested(self, cause: Cause, scene: Scene, rate: Rate) -> Finding:
        if cause.name == "precision" and self._options.against:
            try:
                found = await others(self._options.against, scene, self._store, self._meter)
            except BudgetSpent:
                raise
            except KvphaseError as error:
                why = error.args[0] if error.args else ""
                return _untested(cause, message("diagnose.needs.other", why=why))
            scene = replace(scene, against=found)
        if cause.name == "phase":
            scene = replace(scene, contexts=self._contexts(scene, rate))
        why = missing(cause, scene)
        if why is None and not self._begun(cause):
            why = shortage(cause, scene, rate, self._meter)
        if why is not None:
            return _untested(cause, why)
        self._begin(cause)
        self._watching.begins(cause.name)
        return await execute(
            cause.test(scene),
            self._runtime,
            self._store,
            self._meter,
            self._watching.answered,
            stage=cause.name,
        )

    def _begun(self, cause: Cause) -> bool:
        """Whether an earlier sitting decided that there is room for it."""
        return cause.name in self._store.manifest["begun"]

    def _begin(self, cause: Cause) -> None:
        begun = self._store.manifest["begun"]
        if cause.name not in begun:
            self._store.note(begun=[*begun, cause.name])

    def _contexts(self, scene: Scene, rate: Rate) -> int:
        """As many as fit, or as an earlier sitting decided."""
        known = self._store.manifest.get("contexts")
        if known is None:
            known = contexts_for(scene, rate, self._meter, self._options.contexts)
            self._store.note(contexts=known)
        return int(known)

    async def _minimal(self, scene: Scene) -> Pair | None:
        finding = top(self._findings)
        if finding is None:
            return None
        try:
            flow = minimal(scene, finding)
            return await execute(flow, self._runtime, self._store, self._meter, stage=MINIMAL)
        except BudgetSpent:
            return None


def _untested(cause: Cause, why: Message) -> Finding:
    return Finding(cause.name, "not-tested", why)


def _said(spent: BudgetSpent) -> Message | str:
    """Why the budget ended, as a message where it is one."""
    text = spent.args[0] if spent.args else ""
    return text if isinstance(text, Message) else str(spent)


def _manifest(about: About, vocab: Vocab, options: Options) -> dict[str, Any]:
    return {
        "command": "diagnose",
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
        "tokenizer": vocab.digest,
        "labels": {},
        "seed": options.seed,
        "longest": options.longest,
        "begun": [],
        "findings": [],
        "stages": [],
        "skipped": [],
        "state": "asking",
    }


def _resumed(path: Path, manifest: dict[str, Any]) -> Store:
    store = Store.resume(path)
    before = store.manifest
    if before.get("command") != "diagnose":
        store.close()
        raise UsageError(message("diagnose.other-command", name=path.name))
    for name in _SAME:
        if before.get(name) != manifest[name]:
            store.close()
            raise UsageError(message("diagnose.other", name=path.name, what=name))
    return store


def _read(store: Store) -> Diagnosis:
    manifest = store.manifest
    if manifest.get("command") != "diagnose":
        raise StoreError(message("diagnose.other-command", name=store.path.name))
    if not manifest["findings"]:
        why = manifest.get("stopped")
        raise StoreError(why or message("run.no-answers", name=store.path.name))
    return Diagnosis(
        path=store.path,
        manifest=manifest,
        findings=findings_of(manifest["findings"]),
        pair=pair_of(manifest.get("pair")),
        totals=store.totals(),
        partial=manifest.get("state") != "done",
    )


__all__ = ["Diagnosis", "Options", "Watching", "diagnose", "diagnose_runtime", "load_diagnosis"]
