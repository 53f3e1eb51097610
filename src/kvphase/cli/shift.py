"""``kvphase shift``: a user's own prompt, moved token by token."""

from __future__ import annotations

from typing import Annotated

import typer

from kvphase.cli.options import (  # noqa: TC001 - typer evaluates annotations
    Bounds,
    FillerSeed,
    Json,
    Lang,
    Match,
    Model,
    Out,
    Price,
    Prompt,
    Resume,
    ServerKind,
    Tokenizer,
    Tokens,
)


def shift(
    prompt: Prompt,
    target: Annotated[
        str | None,
        typer.Argument(
            help="http://HOST:PORT of a model server, or toy:w8s4, toy:full.", show_default=False
        ),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(help="The right answer; without one answers are grouped.")
    ] = None,
    against: Annotated[str | None, typer.Option(help="The tempting wrong answer.")] = None,
    match: Match = "exact",
    tokens: Tokens = None,
    full: Annotated[
        bool, typer.Option("--full", help="Sixteen shifts of four fillers; always the control.")
    ] = False,
    move: Annotated[
        str | None, typer.Option(help="head,tail: move the marked span there as well.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask a text inside the server's chat template.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only ask once and show what a run would take.")
    ] = False,
    budget: Bounds = None,
    price: Price = None,
    runtime: ServerKind = None,
    model: Model = None,
    tokenizer: Tokenizer = None,
    seed: FillerSeed = 0,
    out: Out = None,
    resume: Resume = False,
    json: Json = False,
    lang: Lang = None,
) -> None:
    """Ask your own prompt at several shifts: same content, other positions."""
    from kvphase.cli.shifting import moves_of, planned, shifted
    from kvphase.runs.budget import Budget, Prices
    from kvphase.runs.check import DEFAULT_TARGET
    from kvphase.runs.shift_plan import Options
    from kvphase.runs.shift_source import Wanted, read_sources
    from kvphase.runtimes.adapters import Choice

    choice = Choice(runtime, model, tokenizer)
    options = Options(seed=seed, full=full, move=moves_of(move), choice=choice)
    wanted = Wanted(answer=answer, against=against, match=match, tokens=tokens, chat=chat)
    sources = read_sources(prompt, wanted)
    prices = Prices.parse(price) if price else None
    bounds = Budget.parse(budget, prices) if budget else None
    target = DEFAULT_TARGET if target is None else target
    if plan:
        planned(sources, target, options, prices, bounds, json=json)
        return
    shifted(sources, target, options, bounds, out=out, resume=resume, json=json)
