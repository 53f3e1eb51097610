"""``kvphase report``: a page, a card and figures from a run file; the model is not asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvphase.catalogue import preferred
from kvphase.cli.options import Lang  # noqa: TC001 - typer evaluates annotations


def report(
    run: Annotated[Path, typer.Argument(help="The run file, *.kvphase.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="The page, FILE.html.  [default: beside the run]", show_default=False),
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(help="Also a picture to show around, FILE.png.", show_default=False),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Also every figure as PNG and SVG in this folder.", show_default=False),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="A bundle for a bug report instead of a page, FILE.zip.", show_default=False
        ),
    ] = None,
    include_prompt: Annotated[
        bool,
        typer.Option("--include-prompt", help="Your own prompt may go into the bundle."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
    lang: Lang = None,
) -> None:
    """Make a page, a card and figures from a run; nothing is asked of the model."""
    if bundle is not None:
        from kvphase.cli.bundling import bundled

        bundled(run, bundle, preferred(lang), include_prompt=include_prompt, json=json)
        return
    from kvphase.report.files import Wanted, write_report
    from kvphase.report.lines import console, show

    wanted = Wanted(page=out, card=card, figures=figures)
    written = write_report(run, wanted, preferred(lang))
    if json:
        typer.echo(written.as_json())
        return
    for warning in written.warnings:
        sys.stderr.write(f"kvphase: {warning}\n")
    shown = console(sys.stdout)
    for line in written.lines():
        show(shown, line)
