"""The command line: one command a file, argument handling only.

Nothing heavy is imported here: ``kvphase --help`` must answer at once.
"""

from __future__ import annotations

import os
import sys

import typer

from kvphase.cli.analyze import analyze
from kvphase.cli.check import check
from kvphase.cli.info import info
from kvphase.cli.serve import serve
from kvphase.errors import KvphaseError
from kvphase.version import __version__

app: typer.Typer = typer.Typer(
    name="kvphase",
    help="Is my language model wrong because of where the sentence stands? "
    "Measures accuracy by token position modulo the KV-compression stride.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in (check, info, analyze, serve):
    app.command()(_command)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"kvphase {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Options of every command."""


def main() -> None:
    """Entry point: every expected failure is one sentence on stderr and an exit code."""
    _tolerate_any_console()
    try:
        app()
    except KvphaseError as error:
        sys.stderr.write(f"kvphase: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("kvphase: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader (``| head``) went away; say nothing more, and do not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("KVPHASE_TRACEBACK"):
            raise
        sys.stderr.write(
            f"kvphase: a fault of kvphase itself ({type(error).__name__}: {error}); "
            "set KVPHASE_TRACEBACK=1 to see where, and please report it\n"
        )
        sys.exit(70)


def _tolerate_any_console() -> None:
    """Characters that a console's encoding lacks are shown as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
