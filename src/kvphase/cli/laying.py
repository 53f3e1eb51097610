"""What ``kvphase layout`` does with its options: place, write, show."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kvphase.catalogue import Catalogue, message
from kvphase.errors import UsageError
from kvphase.placement.change import WAYS, Way
from kvphase.placement.session import Request, run_layout
from kvphase.report.layout import layout_json, show_layout
from kvphase.report.lines import console, show

if TYPE_CHECKING:
    from kvphase.placement.prompt import Given

_SECONDS = 10.0
"""Between lines of progress."""


def way_of(text: str) -> Way:
    """A change by its name.

    Raises:
        UsageError: there is no such change.
    """
    for way in WAYS:
        if way == text.strip():
            return way
    raise UsageError(message("layout.bad-way", text=text[:60]))


def laid_out(
    given: Given, request: Request, prompt: str, write: Path | None, *, json: bool
) -> None:
    """Lay out, write the changed prompt where that is wanted, and show everything."""
    if write is not None:
        _must_be_new(write, prompt)
    session = run_layout(given.prompts, replace(request, answered=_Progress().answered))
    if write is not None:
        yaml = write.suffix.lower() in (".yaml", ".yml")
        changed = [layout.changed for layout in session.layouts]
        _put(write, given.written(changed, yaml=yaml))
    if json:
        typer.echo(layout_json(session))
    else:
        out, say = console(sys.stdout), Catalogue.on(sys.stdout)
        show_layout(session, out, say)
        if request.verify is not None and session.path is None:
            show(out, say("layout.unverified"))
        if session.path is not None:
            out.print(say("terminal.file.run", path=session.path), soft_wrap=True)
        if write is not None:
            out.print(say("layout.written", path=write), soft_wrap=True)
    if session.spent is not None:
        sys.stderr.write(f"kvphase: {session.spent}\n")


class _Progress:
    """A line on stderr now and then."""

    def __init__(self) -> None:
        self._done = 0
        self._shown = time.monotonic()

    def answered(self, _: object) -> None:
        """Count one answer."""
        self._done += 1
        if time.monotonic() - self._shown >= _SECONDS:
            self._shown = time.monotonic()
            say = Catalogue.on(sys.stderr)
            show(console(sys.stderr), say("layout.progress", n=self._done), "dim")


def _must_be_new(write: Path, prompt: str) -> None:
    """Refuse to overwrite the prompt: its marks would be lost."""
    file = Path(prompt)
    if prompt != "-" and write.exists() and file.exists() and write.samefile(file):
        raise UsageError(message("layout.write-same"))
    if write.is_dir() or not write.parent.is_dir():
        raise UsageError(message("layout.unwritable", name=str(write), why="no such folder"))


def _put(path: Path, text: str) -> None:
    try:
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(text.encode("utf-8", errors="surrogatepass"))
        fresh.replace(path)
    except OSError as error:
        why = error.strerror or "-"
        raise UsageError(message("layout.unwritable", name=path.name, why=why)) from error
