"""``kvphase gate``: pass or fail, as an exit code."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from kvphase.catalogue import Catalogue, message
from kvphase.cli.options import Json, Lang  # noqa: TC001 - typer evaluates annotations


def gate(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run file made with --probe needle@1 or --like RUN.", show_default=False
        ),
    ],
    worst: Annotated[
        float | None,
        typer.Option(
            help="Every phase must be at least this accurate: a fraction, such as 0.90.",
            show_default=False,
        ),
    ] = None,
    max_gap: Annotated[
        float | None,
        typer.Option(
            help="No two phases may be farther apart: percentage points, such as 5.",
            show_default=False,
        ),
    ] = None,
    per_length: Annotated[
        bool,
        typer.Option(
            "--per-length", help="Every length of the run must pass, not only the verdict's."
        ),
    ] = False,
    json: Json = False,
    lang: Lang = None,
) -> None:
    """Pass or fail a run by its worst phase and its gap: exit code 0 or 1.

    A run that is too small to tell fails, and says what would settle it.
    """
    from kvphase.decide.gate import Limits
    from kvphase.decide.gate import gate as gated
    from kvphase.errors import UsageError
    from kvphase.report.gated import gate_json, show_gate
    from kvphase.report.lines import console
    from kvphase.runs.evidence import read_evidence

    if worst is not None and not (math.isfinite(worst) and 0 < worst <= 1):
        raise UsageError(message("decide.gate-worst-range", value=worst))
    if max_gap is not None and not (math.isfinite(max_gap) and 0 <= max_gap <= 100):
        raise UsageError(message("decide.gate-gap-range", value=max_gap))
    found = gated(read_evidence(run), Limits(worst, max_gap), per_length=per_length)
    if json:
        typer.echo(gate_json(found))
    else:
        show_gate(found, console(sys.stdout), Catalogue.on(sys.stdout))
    if found.outcome != "pass":
        raise typer.Exit(1)
