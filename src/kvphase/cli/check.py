"""``kvphase check``: measure one model's phase curve."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvphase.errors import KvphaseError

if TYPE_CHECKING:
    from kvphase.runs.check import Run


class Design(StrEnum):
    """Needle designs."""

    INSEQUENCE = "insequence"
    PREFIX = "prefix"


def check(
    target: Annotated[
        str | None,
        typer.Argument(
            help="http://HOST:PORT of a llama-server, or toy:w8s4, toy:full. "
            "Without one: toy:w8s4, a small model that depends on phase.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of every prompt.  [default: as fits the target]"),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(min=1, help="Records in a context: more are harder."),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(min=1, help="Questions in all, rounded up to whole contexts."),
    ] = None,
    design: Annotated[
        Design,
        typer.Option(
            help="insequence: all phases in one context. prefix: the published protocol, "
            "one prefill a phase."
        ),
    ] = Design.INSEQUENCE,
    modulus: Annotated[int, typer.Option(min=2, help="Residues of the curve.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Decides every word and position.")] = 0,
    cold: Annotated[
        int | None,
        typer.Option(min=0, help="Questions asked again with a prefill of their own (the audit)."),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask inside the server's chat template.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Run file.  [default: a new one in kvphase-runs]", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run file given by --out.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print verdict.json on stdout and nothing else.")
    ] = False,
) -> None:
    """Measure accuracy by token position modulo the stride, and give a verdict."""
    from kvphase.report.progress import Progress
    from kvphase.report.terminal import console
    from kvphase.runs import check as runs
    from kvphase.runs.settings import Settings

    settings = Settings(
        context=context,
        records=records,
        questions=questions,
        design=design.value,
        modulus=modulus,
        seed=seed,
        cold=cold,
        chat=chat,
    )
    opened: list[Path] = []
    err = console(sys.stderr)
    try:
        with Progress(err, opened.append) as watcher:
            run = runs.check(target, settings, out=out, resume=resume, watcher=watcher)
    except (KeyboardInterrupt, KvphaseError) as stop:
        _show_partial(opened, json=json)
        if isinstance(stop, KvphaseError):
            raise
        sys.stderr.write("kvphase: interrupted; everything answered so far is kept\n")
        raise typer.Exit(130) from None
    _show(run, json=json)


def _show(run: Run, *, json: bool) -> None:
    """The result on stdout and as a file beside the run file."""
    from kvphase.report.document import as_json, run_document
    from kvphase.report.terminal import console, show_run

    text = as_json(run_document(run))
    beside = run.path.with_suffix(".verdict.json")
    try:
        beside.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"kvphase: {beside.name} cannot be written: {error.strerror}\n")
    if json:
        typer.echo(text)
    else:
        out = console(sys.stdout)
        show_run(run, out)
        out.print(f"Run file: {run.path}", soft_wrap=True)
        out.print(f"Verdict:  {beside}", soft_wrap=True)
        if run.manifest["target"].startswith("toy:") and not run.partial:
            out.print("Next, your own model on a llama-server: kvphase check http://127.0.0.1:8080")


def _show_partial(opened: list[Path], *, json: bool) -> None:
    """What an interrupted or failed run has measured so far, and how to go on."""
    from kvphase.runs import check as runs

    if not opened:
        return
    try:
        run = runs.load(opened[0])
    except KvphaseError:
        return  # stopped before the first answer
    _show(run, json=json)
    target = run.manifest["target"]
    named = target.startswith("toy:") or "127.0.0.1" in target or "localhost" in target
    again = target if named else "TARGET"  # other hosts are not recorded
    sys.stderr.write(
        f"To go on: kvphase check {again} --resume --out {shlex.quote(str(run.path))}\n"
    )
