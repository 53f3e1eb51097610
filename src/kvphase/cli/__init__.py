"""The command line: one command a file, argument handling only.

Nothing heavy is imported here: ``kvphase --help`` must answer at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from kvphase.catalogue import Catalogue
from kvphase.cli.analyze import analyze
from kvphase.cli.check import check
from kvphase.cli.compare import compare
from kvphase.cli.diagnose import diagnose
from kvphase.cli.gate import gate
from kvphase.cli.info import info
from kvphase.cli.lab import lab
from kvphase.cli.layout import layout
from kvphase.cli.replay import replay
from kvphase.cli.report import report
from kvphase.cli.serve import serve
from kvphase.cli.shift import shift
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
_COMMANDS: dict[Callable[..., None], str] = {
    check: "Measure a model's accuracy by token position.",
    info: "Show what an endpoint is and can do.",
    shift: "Ask your own prompt, moved token by token.",
    layout: "Place the marked spans of your prompt where they are found.",
    analyze: "Give a verdict on results you already have.",
    compare: "Compare runs, ranked by their worst phase.",
    gate: "Pass or fail a run by its worst phase, as an exit code.",
    diagnose: "Find out what makes a model answer wrong.",
    report: "Make a page, a card and figures from a run.",
    replay: "Run a bundle again elsewhere.",
    serve: "Serve a toy model as llama-server would.",
}
"""Every command with the short help that fits a line of the list of commands."""
for _command, _short in _COMMANDS.items():
    app.command(short_help=_short)(_command)
app.add_typer(lab, name="lab", short_help="Train small compressed models of your own.")


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
        code = _run()
    except KvphaseError as error:
        _fail(_spoken(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail(_say("error.interrupted"), 130)
    except BrokenPipeError:
        _reader_went_away()
    except Exception as error:
        if os.environ.get("KVPHASE_TRACEBACK") and not _is_usage(error):
            raise
        _unexpected(error)
    sys.exit(code)


def _run() -> int:
    """Run the command; its exit code.

    Raises:
        BrokenPipeError: typer and rich would turn it into exit code 1, which here is a failed gate.
    """
    try:
        code = app(standalone_mode=False, prog_name="kvphase")
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        raise
    return code if isinstance(code, int) else 0


def _is_usage(error: Exception) -> bool:
    """Whether typer complains about the command line.

    Typer raises errors of its own copy of click or of click itself, by version: they are known by
    what they can do.
    """
    return hasattr(error, "format_message")


def _unexpected(error: Exception) -> NoReturn:
    if _is_usage(error):
        _wrong_usage(error)
    _fail(_say("error.internal", kind=type(error).__name__, problem=str(error)), 70)


def _reader_went_away() -> NoReturn:
    """After ``| head``: say nothing more, and do not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(0)


def _wrong_usage(error: Exception) -> NoReturn:
    """A wrong command line as one sentence; without any arguments, the help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "kvphase"
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{context.get_help() if context is not None else error}\n")
        sys.exit(2)
    problem = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
    _fail(_say("error.usage", problem=problem.replace(" Value error,", ""), command=command), 2)


def _fail(sentence: str, code: int) -> NoReturn:
    """Say ``sentence`` on stderr, without anything that drives a terminal, and exit."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in sentence)
    sys.stderr.write(f"kvphase: {shown}\n")
    sys.exit(code)


def _say(key: str, **values: str) -> str:
    return Catalogue.on(sys.stderr)(key, **values)


def _spoken(error: KvphaseError) -> str:
    """The error in the user's language where it was raised with a message, else in English."""
    text = error.args[0] if error.args else ""
    return Catalogue.on(sys.stderr).of(text) if isinstance(text, str) else str(error)


def _tolerate_any_console() -> None:
    """Characters that a console's encoding lacks are shown as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
