"""``kvphase analyze``: a curve and a verdict from results you already have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

_COLUMN = "Column with the {}; guessed from its name if not given."


def analyze(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV or JSONL: one row an answer (position, correct[, cluster]) "
            "or one row a residue (residue, n, correct)."
        ),
    ],
    position: Annotated[
        str | None, typer.Option(help=_COLUMN.format("token position of the fact"))
    ] = None,
    correct: Annotated[
        str | None, typer.Option(help=_COLUMN.format("outcome, or number right"))
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help=_COLUMN.format("prompt or context of an answer"))
    ] = None,
    residue: Annotated[str | None, typer.Option(help=_COLUMN.format("residue"))] = None,
    n: Annotated[str | None, typer.Option("--n", help=_COLUMN.format("answers a residue"))] = None,
    modulus: Annotated[int, typer.Option(min=2, help="Residues of the curve.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the permutation test.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print verdict.json on stdout.")] = False,
) -> None:
    """Give a curve and a verdict for results that were measured elsewhere."""
    from kvphase.probes.imported import analyze as measure_rows
    from kvphase.probes.imported import read_results
    from kvphase.report.document import as_json, rows_document
    from kvphase.report.terminal import console, show_verdict

    rows = read_results(
        file, position=position, correct=correct, cluster=cluster, residue=residue, n=n
    )
    verdict = measure_rows(rows, modulus=modulus, seed=seed)
    if json:
        typer.echo(as_json(rows_document(verdict, file.name, seed)))
        return
    out = console(sys.stdout)
    out.print(f"{file.name}: {verdict.n} answers", style="bold")
    show_verdict(verdict, out)
