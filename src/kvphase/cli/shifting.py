"""What ``kvphase shift`` does with its options: plan or ask, show, and keep what there is."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import typer

from kvphase.catalogue import Catalogue, message
from kvphase.errors import KvphaseError, UsageError
from kvphase.probes.shift import PLACES, Place
from kvphase.report.lines import clean, console, show
from kvphase.report.shift import show_estimate, show_shift
from kvphase.report.shift_document import as_json, estimate_json, shift_document
from kvphase.report.terminal import show_traffic
from kvphase.runs.shift import ShiftRun, Watching, estimate_shift, load_shift, run_shift

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.probes.shift import ShiftPlan
    from kvphase.runs.budget import Budget, Prices
    from kvphase.runs.shift_plan import Options
    from kvphase.runs.shift_source import Source
    from kvphase.types import About

_SECONDS = 10.0
"""Between lines of progress."""


def moves_of(text: str | None) -> tuple[Place, ...]:
    """Places from ``head,tail``.

    Raises:
        UsageError: it names another one.
    """
    names = [] if text is None else [name.strip() for name in text.split(",")]
    odd = [name for name in names if name not in PLACES]
    if odd:
        raise UsageError(message("shift.bad-move", text=odd[0]))
    return tuple(place for place in PLACES if place in names)


def planned(
    sources: Sequence[Source],
    target: str,
    options: Options,
    prices: Prices | None,
    budget: Budget | None,
    *,
    json: bool,
) -> None:
    """``--plan``: one prompt is timed, everything else is worked out."""
    estimate = estimate_shift(sources, target, options, budget)
    if json:
        typer.echo(estimate_json(estimate))
        return
    show_estimate(estimate, console(sys.stdout), Catalogue.on(sys.stdout), prices)


class _Progress:
    """A line on stderr now and then."""

    def __init__(self, say: Catalogue) -> None:
        self.path: Path | None = None
        self._say = say
        self._done = 0
        self._shown = 0.0

    def opened(self, about: About, path: Path, plan: ShiftPlan) -> None:
        """Name the model and what is asked."""
        import time

        self.path = path
        self._shown = time.monotonic()
        out = console(sys.stderr)
        demo = f"   {self._say('terminal.demo')}" if about.toy else ""
        show(out, clean(about.model or about.target) + demo, "bold")
        show(out, self._say("shift.begins", n=plan.questions, tasks=len(plan.tasks)), "dim")

    def answered(self, _: object) -> None:
        """Count one answer."""
        import time

        self._done += 1
        if time.monotonic() - self._shown >= _SECONDS:
            self._shown = time.monotonic()
            show(console(sys.stderr), self._say("shift.progress", n=self._done), "dim")


def shifted(
    sources: Sequence[Source],
    target: str,
    options: Options,
    budget: Budget | None,
    *,
    out: Path | None,
    resume: bool,
    json: bool,
) -> None:
    """Ask, with progress on stderr, and show the result or what there is of it."""
    say = Catalogue.on(sys.stderr)
    progress = _Progress(say)
    watching = Watching(progress.opened, progress.answered)
    try:
        run = run_shift(
            sources, target, options, out=out, resume=resume, budget=budget, watching=watching
        )
    except (KeyboardInterrupt, KvphaseError) as stop:
        _show_partial(progress.path, json=json)
        if isinstance(stop, KvphaseError):
            raise
        sys.stderr.write(f"kvphase: {say('run.interrupted')}\n")
        raise typer.Exit(130) from None
    _show(run, json=json)
    if run.partial:
        sys.stderr.write(f"kvphase: {run.manifest.get('stopped', '')}\n")
        sys.stderr.write(say("shift.go-on", out=shlex.quote(str(run.path))) + "\n")


def _show(run: ShiftRun, *, json: bool) -> None:
    """The result on stdout and as a file beside the run file."""
    text = as_json(shift_document(run))
    beside = run.path.with_name(run.path.name.removesuffix(".kvphase") + ".shift.json")
    fresh = beside.with_name(f".{beside.name}.new")
    try:
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(beside)
    except OSError as error:
        why = Catalogue.on(sys.stderr)("shift.unwritten", name=beside.name, why=error.strerror)
        sys.stderr.write(f"kvphase: {why}\n")
    if json:
        typer.echo(text)
        return
    out = console(sys.stdout)
    say = Catalogue.on(sys.stdout)
    show_shift(run, out, say)
    show_traffic(bool(run.manifest.get("traffic")), out, say)
    out.print(say("terminal.file.run", path=run.path), soft_wrap=True)
    out.print(say("shift.file", path=beside), soft_wrap=True)


def _show_partial(path: Path | None, *, json: bool) -> None:
    """What an interrupted run has so far, and how to go on."""
    if path is None:
        return
    try:
        run = load_shift(path)
    except KvphaseError:
        return  # stopped before the first answer
    _show(run, json=json)
    say = Catalogue.on(sys.stderr)
    sys.stderr.write(say("shift.go-on", out=shlex.quote(str(path))) + "\n")
