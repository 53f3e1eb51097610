"""``kvphase replay``: run a bundle again elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvphase.cli.options import (  # noqa: TC001 - typer evaluates annotations
    Json,
    Lang,
    Model,
    ServerKind,
    Tokenizer,
)


def replay(
    bundle: Annotated[Path, typer.Argument(help="The bundle, *.zip, of kvphase report --bundle.")],
    target: Annotated[str, typer.Argument(help="http://HOST:PORT of a server, or toy:w8s4.")],
    runtime: ServerKind = None,
    model: Model = None,
    tokenizer: Tokenizer = None,
    json: Json = False,
    lang: Lang = None,
) -> None:
    """Ask the failing pair of a bundle again: is it the same here?"""
    import sys

    from kvphase.catalogue import Catalogue
    from kvphase.report.lines import console
    from kvphase.report.replay import replay as replayed
    from kvphase.report.replay import replay_json, show_replay
    from kvphase.runtimes.adapters import Choice

    found = replayed(bundle, target, Choice(runtime, model, tokenizer))
    if json:
        typer.echo(replay_json(found))
        return
    show_replay(found, console(sys.stdout), Catalogue.on(sys.stdout))
