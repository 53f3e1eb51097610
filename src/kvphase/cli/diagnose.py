"""``kvphase diagnose``: what causes the wrong answers of an endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvphase.cli.options import (  # noqa: TC001 - typer evaluates annotations
    Bounds,
    Json,
    Lang,
    Model,
    Out,
    Price,
    Resume,
    ServerKind,
    Tokenizer,
)


def diagnose(
    target: Annotated[
        str | None,
        typer.Argument(
            help="http://HOST:PORT of a server, lab:FOLDER, transformers:FOLDER, or toy:w8s4.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="A run file or an address to compare with: another quantisation, KV type, "
            "runtime, version or provider; may be repeated.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(
            help="Ask your own prompt too, in every way and at several shifts.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        int,
        typer.Option(min=1, help="Longest prompt that is tried, in tokens."),
    ] = 2048,
    seed: Annotated[int, typer.Option(min=0, help="Decides every word and position.")] = 0,
    runtime: ServerKind = None,
    model: Model = None,
    tokenizer: Tokenizer = None,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="Nobody else uses this server.")
    ] = False,
    budget: Bounds = None,
    price: Price = None,
    out: Out = None,
    resume: Resume = False,
    json: Json = False,
    lang: Lang = None,
) -> None:
    """Test one possible cause of wrong answers after the other: the server's faults first."""
    from kvphase.causes.session import Options
    from kvphase.cli.diagnosing import diagnosed
    from kvphase.runs.budget import Budget, Prices
    from kvphase.runs.check import DEFAULT_TARGET
    from kvphase.runtimes.adapters import Choice

    prices = Prices.parse(price) if price else None
    bounds = Budget.parse(budget, prices) if budget else None
    options = Options(
        seed=seed,
        longest=context,
        against=tuple(against or ()),
        prompt=prompt,
        choice=Choice(runtime, model, tokenizer, exclusive),
    )
    target = DEFAULT_TARGET if target is None else target
    diagnosed(target, options, bounds, out=out, resume=resume, json=json)
