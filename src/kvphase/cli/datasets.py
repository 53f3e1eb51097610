"""What ``kvphase check --dataset`` does with its options: plan or measure, and show."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from kvphase.catalogue import Catalogue, message
from kvphase.cli.checking import show_result, target_or_default
from kvphase.errors import KvphaseError, UsageError
from kvphase.probes.formats import read_dataset
from kvphase.report.dataset import plan_json, show_as_is, show_plan, show_residues
from kvphase.report.lines import console, show
from kvphase.report.progress import Progress
from kvphase.runs.check import load
from kvphase.runs.dataset import Options, described, plan_dataset, run_dataset

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.runs.budget import Budget
    from kvphase.runs.check import Run


@dataclass(frozen=True, slots=True)
class Sitting:
    """Where a run is kept and how it is shown."""

    budget: Budget | None
    out: Path | None
    resume: bool
    json: bool
    plan: bool


def only_dataset(given: dict[str, object]) -> None:
    """Refuse options that compose prompts: a file brings its own.

    Raises:
        UsageError: naming the first of them.
    """
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise UsageError(message("dataset.option", option=name))


def measured_file(file: Path, target: str | None, options: Options, sitting: Sitting) -> None:
    """Measure a file's prompts, with progress on stderr, and show the result or what there is."""
    dataset = read_dataset(file)
    target = target_or_default(target)
    if sitting.plan:
        plan = plan_dataset(dataset, target, options, sitting.budget)
        held = described(plan.dataset, plan.survey, plan.residues)
        if sitting.json:
            typer.echo(plan_json(plan, held))
        else:
            show_plan(plan, held, console(sys.stdout), Catalogue.on(sys.stdout))
        return
    opened: list[Path] = []
    say = Catalogue.on(sys.stderr)
    try:
        with Progress(console(sys.stderr), opened.append, say) as watcher:
            run = run_dataset(
                dataset,
                target,
                options,
                out=sitting.out,
                resume=sitting.resume,
                budget=sitting.budget,
                watcher=watcher,
                found=None if sitting.json else _shown,
            )
    except (KeyboardInterrupt, KvphaseError) as stop:
        _show_partial(opened, file, json=sitting.json)
        if isinstance(stop, KvphaseError):
            raise
        sys.stderr.write(f"kvphase: {say('run.interrupted')}\n")
        raise typer.Exit(130) from None
    _show(run, json=sitting.json)
    if run.partial:
        sys.stderr.write(f"kvphase: {run.manifest.get('stopped', '')}\n")
        _how_to_go_on(run, file)


def _shown(held: dict[str, Any]) -> None:
    """The histogram comes first, before anything is asked."""
    out = console(sys.stdout)
    show_residues(held, out, Catalogue.on(sys.stdout))
    out.print()


def _show(run: Run, *, json: bool) -> None:
    if not json:
        out = console(sys.stdout)
        show_as_is(run.manifest["dataset"], out, Catalogue.on(sys.stdout))
        out.print()
    show_result(run, json=json)


def _show_partial(opened: list[Path], file: Path, *, json: bool) -> None:
    """What an interrupted run has measured so far, and how to go on."""
    if not opened:
        return
    try:
        run = load(opened[0])
    except KvphaseError:
        return  # stopped before there was anything to judge
    _show(run, json=json)
    _how_to_go_on(run, file)


def _how_to_go_on(run: Run, file: Path) -> None:
    say = Catalogue.on(sys.stderr)
    values = {"file": shlex.quote(str(file)), "out": shlex.quote(str(run.path))}
    show(console(sys.stderr), say("dataset.go-on", **values))
