"""What ``kvphase diagnose`` does with its options: ask, show, and keep what there is."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

import typer

from kvphase.catalogue import Catalogue
from kvphase.causes.session import Watching, diagnose, load_diagnosis
from kvphase.errors import KvphaseError
from kvphase.report.diagnosis import diagnosis_json, show_diagnosis, show_finding
from kvphase.report.lines import clean, console, show
from kvphase.report.terminal import show_traffic

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.causes.base import Finding
    from kvphase.causes.session import Diagnosis, Options
    from kvphase.runs.budget import Budget
    from kvphase.runs.execute import Event
    from kvphase.types import About

_SECONDS = 10.0
"""Between lines of progress."""


class _Progress(Watching):
    """On stderr: each cause as it begins and ends, and a line now and then."""

    def __init__(self, say: Catalogue) -> None:
        self.path: Path | None = None
        self.answered = self._count
        self._say = say
        self._done = 0
        self._shown = time.monotonic()

    def opened(self, about: About, path: Path) -> None:
        self.path = path
        demo = f"   {self._say('terminal.demo')}" if about.toy else ""
        show(console(sys.stderr), clean(about.model or about.target) + demo, "bold")

    def begins(self, cause: str) -> None:
        name = self._say(f"diagnose.name.{cause}")
        show(console(sys.stderr), self._say("diagnose.begins", name=name), "dim")

    def ends(self, finding: Finding) -> None:
        if finding.status != "not-tested":
            show_finding(finding, console(sys.stderr), self._say)

    def _count(self, _: Event) -> None:
        self._done += 1
        if time.monotonic() - self._shown >= _SECONDS:
            self._shown = time.monotonic()
            show(console(sys.stderr), self._say("shift.progress", n=self._done), "dim")


def diagnosed(
    target: str,
    options: Options,
    budget: Budget | None,
    *,
    out: Path | None,
    resume: bool,
    json: bool,
) -> None:
    """Diagnose, with progress on stderr, and show the result or what there is of it."""
    say = Catalogue.on(sys.stderr)
    progress = _Progress(say)
    try:
        found = diagnose(target, options, out=out, resume=resume, budget=budget, watching=progress)
    except (KeyboardInterrupt, KvphaseError) as stop:
        _show_partial(progress.path, say, json=json)
        if isinstance(stop, KvphaseError):
            raise
        sys.stderr.write(f"kvphase: {say('run.interrupted')}\n")
        raise typer.Exit(130) from None
    _show(found, json=json)
    if found.partial:
        sys.stderr.write(f"kvphase: {found.manifest.get('stopped', '')}\n")
        sys.stderr.write(say("diagnose.go-on", out=shlex.quote(str(found.path))) + "\n")


def _show(found: Diagnosis, *, json: bool) -> None:
    """The result on stdout and as a file beside the run file."""
    text = diagnosis_json(found)
    beside = found.path.with_name(found.path.name.removesuffix(".kvphase") + ".diagnosis.json")
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
    out, say = console(sys.stdout), Catalogue.on(sys.stdout)
    show_diagnosis(found, out, say)
    out.print()
    show_traffic(bool(found.manifest.get("traffic")), out, say)
    out.print(say("terminal.file.run", path=found.path), soft_wrap=True)
    out.print(say("diagnose.file", path=beside), soft_wrap=True)


def _show_partial(path: Path | None, say: Catalogue, *, json: bool) -> None:
    """What an interrupted diagnosis has so far, and how to go on."""
    if path is None:
        return
    try:
        found = load_diagnosis(path)
    except KvphaseError:
        return  # stopped before the first finding
    _show(found, json=json)
    sys.stderr.write(say("diagnose.go-on", out=shlex.quote(str(path))) + "\n")
