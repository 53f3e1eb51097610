"""``kvphase info``: what an endpoint is and can do."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kvphase.catalogue import Catalogue
from kvphase.cli.options import (  # noqa: TC001 - typer evaluates annotations
    Lang,
    Model,
    ServerKind,
    Tokenizer,
)


def info(
    target: Annotated[str, typer.Argument(help="http://HOST:PORT, or toy:NAME.")],
    runtime: ServerKind = None,
    model: Model = None,
    tokenizer: Tokenizer = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    lang: Lang = None,
) -> None:
    """Show what this endpoint is and can do, and what kvphase does about what it cannot."""
    from kvphase.report.endpoint import endpoint_json, show_endpoint
    from kvphase.report.lines import console
    from kvphase.runs.check import run_sync
    from kvphase.runs.inspect import inspect
    from kvphase.runtimes.adapters import Choice

    endpoint = run_sync(inspect(target, Choice(runtime, model, tokenizer)))
    if json:
        typer.echo(endpoint_json(endpoint))
    else:
        show_endpoint(endpoint, console(sys.stdout), Catalogue.on(sys.stdout))
