"""``kvphase layout``: where the marked spans of a prompt stand, and how to place them better."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvphase.cli.options import Lang  # noqa: TC001 - typer evaluates annotations


def layout(
    prompt: Annotated[
        str,
        typer.Argument(
            help="A text, messages or a whole request as JSON, a suite as YAML; - for stdin."
        ),
    ],
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
        typer.Option(help="Ask this target both versions.", show_default=False),
    ] = None,
    answer: Annotated[str | None, typer.Option(help="The right answer, for --verify.")] = None,
    match: Annotated[
        str,
        typer.Option(help="exact, contains, regex, choice, json, or command:CMD (exit 0: right)."),
    ] = "exact",
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Answer tokens to generate.  [default: as fits --match]"),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="A text stands inside the server's chat template.")
    ] = False,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="For --verify: 15m, 2000q, 3Mtok; may be repeated.  [default: 15m]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides the filler's words.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run file of --verify.  [default: a new one in kvphase-runs]",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run file given by --out.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON and nothing else.")
    ] = False,
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
