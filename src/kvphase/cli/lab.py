"""``kvphase lab``: train members of the model family at laptop size."""

from __future__ import annotations

import importlib
import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from kvphase.errors import UsageError

__all__ = ["lab"]

lab: typer.Typer = typer.Typer(
    help="Train small compressed models of your own, and look inside them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@lab.callback()
def _group() -> None:
    """Train small compressed models of your own, and look inside them."""


@lab.command(short_help="Train a model: a YAML or JSON file, or a preset.")
def train(
    config: Annotated[
        str,
        typer.Argument(
            help="A .yaml or .json file, or a preset: laptop, family, paper, toy-w8s4 ..."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run.  [default: runs/NAME]")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, as train.steps=100; may be repeated."),
    ] = None,
    imports: Annotated[
        list[Path] | None,
        typer.Option("--import", help="A Python file with a compressor design of your own."),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="Learning rates, as 3e-4,1e-3,3e-3: short runs pick one by loss."),
    ] = None,
    sweep_steps: Annotated[int, typer.Option(min=1, help="Steps of each of these runs.")] = 300,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many seeds, from 0 on.")] = 1,
    every: Annotated[int, typer.Option(min=1, help="Steps between two checkpoints.")] = 100,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    device: Annotated[str, typer.Option(help="Where to train: cpu, cuda.")] = "cpu",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show sizes only; nothing is allocated.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Train a model; started again, it goes on where it was.

    Progress goes to stderr. At the end a model of lookups is asked fresh ones, and its accuracy by
    position is printed and kept as results.json; `kvphase check lab:FOLDER` measures it in full.
    """
    command = _lab("command")
    chosen = command.Options(
        out=out,
        rates=command.parse_rates(sweep) if sweep else (),
        sweep_steps=sweep_steps,
        seeds=seeds,
        every=every,
        threads=threads,
        device=device,
    )
    experiment = _lab("experiment").read_experiment(config, change or (), imports or ())
    found = command.describe(experiment) if dry_run else command.train(experiment, chosen)
    typer.echo(json_text.dumps(found) if json else command.lines(found))


@lab.command(short_help="Check a compressor: causality, cache, memory, gradients.")
def verify(
    config: Annotated[str, typer.Argument(help="A .yaml or .json file, or a preset.")],
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, as model.layers=3; may be repeated."),
    ] = None,
    imports: Annotated[
        list[Path] | None,
        typer.Option("--import", help="A Python file with a compressor design of your own."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Check a compressor on a small random model; exit code 1 if something is wrong."""
    experiment = _lab("experiment").read_experiment(config, change or (), imports or ())
    problems = _lab("verify").verify(experiment.model)
    name = experiment.model.compressor.name
    if json:
        typer.echo(json_text.dumps({"design": name, "problems": problems}))
    else:
        kept = f"{name}: causality, cache, memory and gradients hold"
        typer.echo("\n".join(problems) or kept)
    if problems:
        raise typer.Exit(1)


@lab.command(short_help="Test the published claims on a family of trained models.")
def claims(
    models: Annotated[
        Path | None,
        typer.Option(
            help="Folder of trained members.  [default: those that ship]", show_default=False
        ),
    ] = None,
    retrain: Annotated[
        bool,
        typer.Option("--retrain", help="Train them first, into --models (default runs/family)."),
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Members to look at, as w4s4,full.  [default: all]")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=0, help="Processes, each on one thread; 0: one a core.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Ask every member the same questions and say which published claims hold.

    The figures are compared with those recorded beside the weights; exit code 1 if one differs.
    """
    command = _lab("claiming")
    folder = models or (Path("runs/family") if retrain else None)
    names = tuple(name.strip() for name in only.split(",")) if only else ()
    found = command.claims(command.Options(folder, retrain, names, jobs))
    typer.echo(json_text.dumps(found) if json else command.lines(found))
    if found["recorded"].startswith("differs"):
        raise typer.Exit(1)


def _lab(module: str) -> Any:  # noqa: ANN401 - its types need torch
    """A module of the lab; torch is an extra that no other command needs.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(f"kvphase.lab.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("kvphase"):
            raise
        raise UsageError(
            f"kvphase lab needs {error.name}, which is not installed: pip install 'kvphase[lab]'"
        ) from error
