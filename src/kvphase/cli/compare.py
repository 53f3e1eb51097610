"""``kvphase compare``: several runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvphase.catalogue import Catalogue, message, preferred
from kvphase.cli.options import Json, Lang  # noqa: TC001 - typer evaluates annotations


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Two or more run files, *.kvphase; verdict.json as far as its counts go.",
            show_default=False,
        ),
    ],
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Also the curves side by side, FILE.svg or FILE.png.", show_default=False
        ),
    ] = None,
    json: Json = False,
    lang: Lang = None,
) -> None:
    """Compare runs: paired where they asked the same, ranked by their worst phase."""
    from kvphase.decide.compare import compare as compared
    from kvphase.errors import UsageError
    from kvphase.report.compared import comparison_json, length_name, show_comparison
    from kvphase.report.compared_figure import check_figure_path, longest, write_figure
    from kvphase.report.lines import clean, console, show
    from kvphase.runs.evidence import read_evidence

    if figure is not None:
        check_figure_path(figure, runs)
    for place, path in enumerate(runs):
        if path.exists() and any(other.exists() and path.samefile(other) for other in runs[:place]):
            raise UsageError(message("decide.twice", name=path.name))
    found = compared([read_evidence(path) for path in runs])
    if figure is not None:
        write_figure(found, figure, preferred(lang))
    if json:
        typer.echo(comparison_json(found))
        return
    out, say = console(sys.stdout), Catalogue.on(sys.stdout)
    show_comparison(found, out, say)
    if figure is not None:
        show(out, say("decide.figure.written", path=clean(str(figure))))
        if len(found.tables) > 1:
            rung = length_name(longest(found).rung, say)
            show(out, say("decide.figure.one", n=len(found.tables), rung=rung), "dim")
