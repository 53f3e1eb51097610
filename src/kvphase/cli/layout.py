"""``kvphase layout``: where the marked spans of a prompt stand, and how to place them better."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvphase.cli.options import (  # noqa: TC001 - typer evaluates annotations
    Bounds,
    FillerSeed,
    Json,
    Lang,
    Match,
    Out,
    Prompt,
    Resume,
    Tokens,
)


def layout(
    prompt: Prompt,
    target: Annotated[
        str | None,
        typer.Argument(help="A URL, toy:NAME, lab:FOLDER: it tokenizes.", show_default=False),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A tokenizer.json instead of a target.", show_default=False),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Tokens between two entries of the cache.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens pooled into one entry.  [default: the stride]"),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="A run file or verdict.json of your model, or published:NAME.",
            show_default=False,
        ),
    ] = None,
    change: Annotated[
        str,
        typer.Option(help="pad, head, tail or repeat: what is shown, written and verified."),
    ] = "pad",
    write: Annotated[
        Path | None,
        typer.Option(help="Write the changed prompt, without its marks.", show_default=False),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(
            help="Ask this target both versions; --budget, --out and --resume belong to it.",
            show_default=False,
        ),
    ] = None,
    answer: Annotated[str | None, typer.Option(help="The right answer, for --verify.")] = None,
    match: Match = "exact",
    tokens: Tokens = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="A text stands inside the server's chat template.")
    ] = False,
    budget: Bounds = None,
    seed: FillerSeed = 0,
    out: Out = None,
    resume: Resume = False,
    json: Json = False,
    lang: Lang = None,
) -> None:
    """Show where the marked spans stand on the cache's grid, and the cheapest better place."""
    from kvphase.cli.laying import laid_out, way_of
    from kvphase.placement.profile import read_profile
    from kvphase.placement.prompt import read_prompts
    from kvphase.placement.session import Request
    from kvphase.runs.budget import Budget
    from kvphase.runs.shift_source import Wanted

    given = read_prompts(prompt, Wanted(answer=answer, match=match, tokens=tokens, chat=chat))
    request = Request(
        tokenizer=tokenizer,
        target=target,
        verify=verify,
        stride=stride,
        window=window,
        profile=None if profile is None else read_profile(profile),
        way=way_of(change),
        seed=seed,
        out=out,
        resume=resume,
        budget=Budget.parse(budget) if budget else None,
    )
    laid_out(given, request, prompt, write, json=json)
