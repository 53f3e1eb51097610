"""What ``kvphase report --bundle`` does."""

from __future__ import annotations

import json as jsons
import sys
from typing import TYPE_CHECKING

import typer

from kvphase.catalogue import Catalogue
from kvphase.report.bundle import write_bundle
from kvphase.report.lines import console, show

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.catalogue import Language


def bundled(run: Path, path: Path, language: Language, *, include_prompt: bool, json: bool) -> None:
    """Write the bundle and say where it is, and what was left out of it."""
    bundle = write_bundle(run, path, language, include_prompt=include_prompt)
    if bundle.kept_back:
        sys.stderr.write(f"kvphase: {Catalogue.on(sys.stderr)('bundle.no-prompt')}\n")
    if json:
        pair = bundle.pair is not None
        typer.echo(jsons.dumps({"schema": "kvphase/bundle@1", "path": str(path), "pair": pair}))
        return
    show(console(sys.stdout), Catalogue.on(sys.stdout)("bundle.written", path=path))
