"""``kvphase analyze``: a curve and a verdict from results you already have."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvphase.catalogue import Catalogue
from kvphase.cli.options import Lang  # noqa: TC001 - typer evaluates annotations

_COLUMN = "Column of {}; if not given, found by its name."


def analyze(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV or JSONL: one row an answer (position, correct[, cluster]) "
            "or one row a residue (residue, n, correct). Or samples of lm-eval, logs of inspect.",
            show_default=False,
        ),
    ],
    position: Annotated[
        str | None, typer.Option(help=_COLUMN.format("the fact's token position"))
    ] = None,
    correct: Annotated[
        str | None, typer.Option(help=_COLUMN.format("right or wrong, or the number right"))
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help=_COLUMN.format("what rows of one prompt share"))
    ] = None,
    residue: Annotated[
        str | None, typer.Option(help=_COLUMN.format("the position modulo M"))
    ] = None,
    n: Annotated[
        str | None, typer.Option("--n", help=_COLUMN.format("answers at a residue"))
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="tokenizer.json of the model, to place facts in the prompts of samples and logs.",
            show_default=False,
        ),
    ] = None,
    modulus: Annotated[int, typer.Option(min=2, help="Residues of the curve.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the permutation test.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print verdict.json on stdout.")] = False,
    lang: Lang = None,
) -> None:
    """Give a curve and a verdict for results that were measured elsewhere."""
    from kvphase.probes.imported import analyze as measure_rows
    from kvphase.probes.imported import read_results
    from kvphase.probes.samples import read_samples
    from kvphase.report.document import as_json, rows_document
    from kvphase.report.lines import clean, console, show
    from kvphase.report.terminal import show_verdict

    samples = read_samples(file)
    if samples is not None:
        from kvphase.cli.samples import analyze_samples

        analyze_samples(samples, tokenizer, modulus=modulus, seed=seed, json=json)
        return
    rows = read_results(
        file, position=position, correct=correct, cluster=cluster, residue=residue, n=n
    )
    verdict = measure_rows(rows, modulus=modulus, seed=seed)
    if json:
        typer.echo(as_json(rows_document(verdict, clean(file.name), seed)))
        return
    out, say = console(sys.stdout), Catalogue.on(sys.stdout)
    show(out, say("terminal.file", name=clean(file.name), n=verdict.n), "bold")
    show_verdict(verdict, out, say)
