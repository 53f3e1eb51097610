"""A file's prompts from reading to verdict: locate, show, place, ask, judge; one run file."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Message, message
from kvphase.errors import StoreError, UsageError
from kvphase.probes.dataset import ASIS, SHIFTED, DatasetPlan, measured
from kvphase.probes.residues import Residues, residues
from kvphase.runs.budget import DEFAULT_SECONDS, Budget, BudgetSpent, Meter
from kvphase.runs.check import default_path, load, must_be_bounded, out_exists, run_sync
from kvphase.runs.dataset_grade import grader
from kvphase.runs.dataset_place import Located, Survey, shifted, shifts_of, survey
from kvphase.runs.dataset_size import Sizes, sized, timed
from kvphase.runs.execute import execute
from kvphase.runs.shared import SharedReplies
from kvphase.runs.stages import Skipped, Stage, read_stages
from kvphase.runs.stages import measured as of_stage
from kvphase.runs.store import Store
from kvphase.runtimes.adapters import Choice
from kvphase.runtimes.detect import open_runtime
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvphase.probes.dataset import Prompt
    from kvphase.probes.formats import Dataset, Unusable
    from kvphase.runs.check import Run
    from kvphase.runs.watch import Watcher
    from kvphase.types import About, Answers, Flow, Runtime

_SAME = ("runtime", "model", "dataset", "modulus", "seed", "template", "tokenizer")
"""What a resumed run must share with the run it resumes, in the order in which it is looked at."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is asked."""

    modulus: int = 8
    seed: int = 0
    questions: int | None = None
    """Requests for shifted prompts; as many as the budget holds if not given."""
    chat: bool = False
    """Plain prompts are asked inside the chat template."""
    labels: dict[str, str] = field(default_factory=dict)
    choice: Choice = field(default_factory=Choice)
    """Kind of server, model and tokenizer, where they should not be found out."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a run would take."""

    about: About
    dataset: Dataset
    survey: Survey
    residues: Residues
    sizes: Sizes
    budget: Budget


def run_dataset(
    dataset: Dataset,
    target: str,
    options: Options | None = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    watcher: Watcher | None = None,
    found: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Ask a file's prompts and judge whether what comes back depends on where their facts stand.

    Args:
        dataset: As `kvphase.probes.formats.read_dataset` reads it.
        target: A URL or ``toy:NAME``.
        options: Modulus, seed and amount.
        out: The run file; a new one under ``kvphase-runs`` if not given.
        resume: Go on with ``out``.
        budget: Bounds for this sitting; a quarter of an hour if not given.
        watcher: Shows progress.
        found: Told where the facts stand (the manifest's ``dataset``) before anything is asked.

    Raises:
        UsageError: bad input. RuntimeFault: the model cannot be reached or is unusable; whatever
            was answered before is in the run file.
    """
    job = _Job(dataset, target, options or Options(), watcher, found)
    return run_sync(job.run(out, budget, resume=resume))


def plan_dataset(
    dataset: Dataset, target: str, options: Options, budget: Budget | None = None
) -> Planned:
    """Locate every fact, time one prompt, and work out the rest; nothing is kept."""
    return run_sync(_planned(dataset, target, options, budget))


async def _planned(
    dataset: Dataset, target: str, options: Options, budget: Budget | None
) -> Planned:
    meter = Meter(Budget(seconds=DEFAULT_SECONDS) if budget is None else budget)
    shifts = shifts_of(options.modulus)
    must_be_bounded(target, meter.budget)
    async with open_runtime(target, choice=options.choice) as runtime:
        found = await survey(runtime, dataset, options.seed, shifts, chat=options.chat)
        spread = residues(found.positions, (options.modulus,))
        rate = await timed(runtime, found.located[0].prompt, meter)
        sizes = sized(found, spread, rate, meter.left(), shifts, options.questions)
        return Planned(runtime.about, dataset, found, spread, sizes, meter.budget)


@dataclass(slots=True)
class _Job:
    """One sitting."""

    dataset: Dataset
    target: str
    options: Options
    watcher: Watcher | None
    found: Callable[[dict[str, Any]], None] | None

    async def run(self, out: Path | None, budget: Budget | None, *, resume: bool) -> Run:
        """Ask what is left to ask."""
        meter = Meter(Budget(seconds=DEFAULT_SECONDS) if budget is None else budget)
        shifts = shifts_of(self.options.modulus)
        there = _is_there(out, resume=resume)
        must_be_bounded(self.target, meter.budget)
        options = self.options
        async with open_runtime(self.target, choice=options.choice) as runtime:
            found = await survey(runtime, self.dataset, options.seed, shifts, chat=options.chat)
            spread = residues(found.positions, (options.modulus,))
            if self.found is not None:
                self.found(described(self.dataset, found, spread))
            manifest = _manifest(runtime.about, self.dataset, found, spread, options)
            path = out or default_path(runtime.about)
            store = _resumed(path, manifest) if there else Store.create(path, manifest)
            with store:
                if self.watcher is not None:
                    self.watcher.opened(runtime.about, path)
                asking = _Asking(runtime, store, meter, found, spread, options, self.watcher)
                try:
                    await asking.all()
                    store.note(state="done")
                except BudgetSpent as spent:
                    if not store.totals()["asked"]:
                        raise UsageError(message("run.spent-early", why=str(spent))) from spent
                    store.note(state="partial", stopped=str(spent))
                finally:
                    store.note(traffic=runtime.traffic)
                    if not there and not store.totals()["asked"]:
                        store.discard()
        return load(path)


@dataclass(slots=True)
class _Asking:
    """The stages of a run: every prompt as it stands, then shifted, then perhaps the control."""

    runtime: Runtime
    store: Store
    meter: Meter
    survey: Survey
    residues: Residues
    options: Options
    watcher: Watcher | None
    done: dict[str, Stage] = field(default_factory=dict)
    placed: list[tuple[Located, Prompt]] = field(default_factory=list)
    unplaced: set[int] = field(default_factory=set)
    """Lines of prompts into which no filler goes."""

    async def all(self) -> None:
        """Ask everything that is decided to be asked.

        Raises:
            BudgetSpent: nothing is left. UsageError: not even one prompt fits the budget.
        """
        self.done = {stage.name: stage for stage in read_stages(self.store.manifest)}
        self.meter.check()
        shifts = shifts_of(self.options.modulus)
        sizes = await self._sizes(shifts)
        if self.residues.spread == "spread":
            whole = [one.prompt for one in self.survey.located[: sizes.asis]]
        else:
            whole = [prompt for _, prompt in await self._placed(sizes.shifted, shifts)]
        await self._asis(whole)
        prompts = [prompt for _, prompt in await self._placed(sizes.shifted, shifts)]
        if prompts:
            await self._shifted(prompts, shifts)

    async def _sizes(self, shifts: int) -> Sizes:
        """How many prompts are asked: as decided in an earlier sitting, or as fit now."""
        kept = self.store.manifest.get("sizes")
        if kept is not None:
            return Sizes(**kept)
        rate = await timed(self.runtime, self.survey.located[0].prompt, self.meter)
        self.meter.prefill_rate = rate.prefill
        left, asked = self.meter.left(), self.options.questions
        sizes = sized(self.survey, self.residues, rate, left, shifts, asked)
        if sizes.why is not None:
            self.store.note(skipped=[Skipped(SHIFTED, sizes.why).as_json()])
        sizes.must_hold(self.residues.spread)
        self.store.note(sizes={"asis": sizes.asis, "shifted": sizes.shifted})
        return sizes

    async def _placed(self, wanted: int, shifts: int) -> list[tuple[Located, Prompt]]:
        """The first prompts that can be shifted to the token.

        Raises:
            UsageError: not one of them can.
        """
        tried = len(self.placed) + len(self.unplaced)
        for one in self.survey.located[tried:]:
            if len(self.placed) >= wanted:
                break
            prompt = await shifted(self.runtime, one, shifts, self.options.seed)
            if prompt is None:
                self.unplaced.add(one.item.line)
            else:
                self.placed.append((one, prompt))
        if wanted and not self.placed:
            first = min(self.unplaced)
            name = self.survey.located[0].source.name.rpartition(":")[0]
            values = {"line": first, "count": len(self.unplaced)}
            why = message("dataset.unplaced")
            raise UsageError(message("dataset.nothing", file=name, why=why, **values))
        if self.unplaced:
            kept = dict(self.store.manifest["dataset"])
            self.store.note(dataset={**kept, "unplaced": sorted(self.unplaced)})
        return self.placed

    async def _asis(self, prompts: Sequence[Prompt]) -> None:
        plan = DatasetPlan(tuple(prompts), self.options.seed)
        stage = self._stage(ASIS, plan, 1)
        await self._ask(stage, plan, _once(plan.asis()))
        correct = self.store.answers(stage=stage.name).correct
        told = [int((correct == 1).sum()), int((correct >= 0).sum())]
        self.store.note(dataset={**self.store.manifest["dataset"], "asis": told})

    async def _shifted(self, prompts: Sequence[Prompt], shifts: int) -> None:
        plan = DatasetPlan(tuple(prompts), self.options.seed)
        stage = self._stage(SHIFTED, plan, shifts)
        await self._ask(stage, plan, _both(plan), last=False)
        answers = self.store.answers(stage=stage.name)
        if measured(stage.design, answers, stage.seed).verdict == "phase-sensitive":
            await self._control(stage, shifts)
        self._end(stage.name)

    async def _control(self, stage: Stage, shifts: int) -> None:
        """Filler behind the facts, where there is a place for it."""
        seed = self.options.seed
        tails: list[Prompt] = []
        for one, prompt in self.placed:
            made = await shifted(self.runtime, one, shifts, seed, tail=True)
            tails.append(prompt if made is None else replace(prompt, tail=made.tail))
        plan = DatasetPlan(tuple(tails), seed)
        await self._ask(stage, plan, _once(plan.control()), last=False)

    def _stage(self, kind: str, plan: DatasetPlan, shifts: int) -> Stage:
        manifest = self.store.manifest
        facts = sum(len(prompt.facts) for prompt in plan.prompts)
        design = {
            "kind": kind,
            "format": manifest["dataset"]["format"],
            "dataset": manifest["dataset"]["digest"],
            "modulus": self.options.modulus,
            "spread": self.residues.spread,
            "at": None if self.residues.at is None else list(self.residues.at),
            "facts": self.residues.n,
            "prompts": len(plan.prompts),
            "sizes": [len(prompt.facts) for prompt in plan.prompts],
        }
        return Stage(
            name=f"{kind}-{manifest['dataset']['digest'][:8]}",
            kind="asis" if kind == ASIS else "shifted",
            questions=facts * shifts,
            prefills=len(plan.prompts) * shifts,
            tokens=max(len(prompt.ids) for prompt in plan.prompts),
            modulus=self.options.modulus,
            seed=self.options.seed,
            design=design,
        )

    async def _ask(
        self, stage: Stage, plan: DatasetPlan, flow: Flow[Answers], *, last: bool = True
    ) -> None:
        """Run a part of a stage to its end, or go on with it."""
        begun = self.done.get(stage.name, stage)
        self._keep(begun)
        observe = None
        if self.watcher is not None:
            self.watcher.begins(begun)
            observe = self.watcher.answered
        self.store.grade = grader(plan.rules)
        shared = SharedReplies(self.runtime)
        await execute(flow, shared, self.store, self.meter, observe, stage=stage.name)
        if last:
            self._end(stage.name)

    def _end(self, name: str) -> None:
        self._keep(replace(self.done[name], state="done"))
        if self.watcher is not None:
            self.watcher.ends(of_stage(self.done[name], self.store))

    def _keep(self, stage: Stage) -> None:
        self.done[stage.name] = stage
        self.store.note(stages=[asdict(one) for one in self.done.values()])


def _once(asks: Sequence[Any]) -> Flow[Answers]:
    """Ask these; their answers are the result."""
    return (yield list(asks))


def _both(plan: DatasetPlan) -> Flow[Answers]:
    """The shifted prompts, then some of them without the cache."""
    answers = yield plan.screen()
    cold = plan.cold()
    return answers.join((yield cold)) if cold else answers


def _is_there(out: Path | None, *, resume: bool) -> bool:
    if resume and out is None:
        raise UsageError(message("shift.resume-out"))
    there = out is not None and out_exists(out)
    if there and not resume:
        raise StoreError(message("shift.exists", name=out.name if out else ""))
    return there


def digest_of(dataset: Dataset) -> str:
    """Of everything in a file that decides what is asked; its name does not."""
    text = "\n".join(
        repr((item.texts, item.facts, item.body, item.tokens)) for item in dataset.items
    )
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _manifest(
    about: About, dataset: Dataset, found: Survey, spread: Residues, options: Options
) -> dict[str, Any]:
    digest = digest_of(dataset)
    chat = options.chat or any(item.body is not None for item in dataset.items)
    return {
        "kvphase": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "target": about.target,
        "runtime": about.runtime,
        "build": about.build,
        "model": about.model,
        "quant": about.quant,
        "template": "request" if chat else "none",
        "thinking": about.thinking,
        "toy": about.toy,
        "tokenizer": found.digest,
        "labels": options.labels,
        # A file is a fixed set of questions, like a named probe: its difficulty was chosen by
        # nobody for the model at hand.
        "settings": {"frozen": [{"kind": "dataset", "dataset": digest}]},
        "modulus": options.modulus,
        "seed": options.seed,
        "dataset": described(dataset, found, spread),
        "stages": [],
        "skipped": [],
        "state": "asking",
    }


def described(dataset: Dataset, found: Survey, spread: Residues) -> dict[str, Any]:
    """What the manifest keeps of a file."""
    return {
        "file": dataset.name,
        "format": dataset.format,
        "digest": digest_of(dataset),
        "entries": len(dataset.items) + len(dataset.unusable),
        "drawn": found.drawn,
        "usable": len(found.located),
        "unusable": [_told(one) for one in (*dataset.unusable, *found.unusable)],
        "unplaced": [],
        **spread.as_json(),
    }


def _told(one: Unusable) -> dict[str, Any]:
    return {"line": one.line, "key": one.why.key, "values": _plain(one.why.values)}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: str(v) if isinstance(v, Message) else v for name, v in values.items()}


def _resumed(path: Path, manifest: dict[str, Any]) -> Store:
    store = Store.resume(path)
    before = store.manifest
    if "dataset" not in before:
        store.close()
        raise UsageError(message("dataset.other-command", name=path.name))
    for name in _SAME:
        one, two = before.get(name), manifest[name]
        same = before["dataset"]["digest"] == two["digest"] if name == "dataset" else one == two
        if not same:
            store.close()
            raise UsageError(message(f"dataset.other-{name}", name=path.name))
    return store


__all__ = ["Options", "Planned", "described", "digest_of", "plan_dataset", "run_dataset"]
