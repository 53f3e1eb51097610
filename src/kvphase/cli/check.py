"""``kvphase check``: measure one model's phase curve."""

from __future__ import annotations

from enum import StrEnum
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

DEFAULT_MODULUS = 8


class Design(StrEnum):
    """Needle designs."""

    INSEQUENCE = "insequence"
    PREFIX = "prefix"


class Confirming(StrEnum):
    """When contexts are shifted."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def check(
    target: Annotated[
        str | None,
        typer.Argument(
            help="http://HOST:PORT of a model server, lab:FOLDER, transformers:FOLDER, "
            "or toy:w8s4, toy:full, toy:w4s4, toy:w8s8. "
            "Without one: toy:w8s4, a small model that depends on phase.",
            show_default=False,
        ),
    ] = None,
    budget: Bounds = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only time the server and show what a run would take.")
    ] = False,
    rungs: Annotated[
        str | None,
        typer.Option(
            help="What to climb: flip,2k,8k,32k,128k.  [default: all that fit]", show_default=False
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="One rung of needles, prompts of so many tokens."),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(min=1, help="Records in a context: more are harder."),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(min=1, help="Questions a rung, rounded up to whole contexts."),
    ] = None,
    design: Annotated[
        Design,
        typer.Option(
            help="insequence: all phases in one context. prefix: the published protocol, "
            "one prefill a phase."
        ),
    ] = Design.INSEQUENCE,
    modulus: Annotated[int, typer.Option(min=2, help="Residues of the curve.")] = DEFAULT_MODULUS,
    seed: Annotated[int, typer.Option(min=0, help="Decides every word and position.")] = 0,
    cold: Annotated[
        int | None,
        typer.Option(min=0, help="Questions asked again with a prefill of their own."),
    ] = None,
    early: Annotated[
        bool, typer.Option(help="Look at 25, 50 and 75% of the answers; stop if enough.")
    ] = True,
    adapt: Annotated[
        bool, typer.Option(help="Choose the number of records on a pilot, on servers.")
    ] = True,
    confirm: Annotated[
        Confirming, typer.Option(help="Shift whole contexts after a finding.")
    ] = Confirming.AUTO,
    like: Annotated[
        Path | None,
        typer.Option(help="Ask what another run asked: same items and difficulty."),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(
            help="A named design that never changes: needle@1; lookup@1 and lookup-prefix@1 "
            "for models of the lab."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE kept with the run, such as kv=q8_0."),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            help="Ask the prompts of a file: key-value JSONL, RULER, HELMET json_kv, pass key, "
            "needle, story, chat transcripts.",
            show_default=False,
        ),
    ] = None,
    price: Price = None,
    runtime: ServerKind = None,
    model: Model = None,
    tokenizer: Tokenizer = None,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="Nobody else uses this server.")
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask inside the server's chat template.")
    ] = False,
    out: Out = None,
    resume: Resume = False,
    json: Json = False,
    lang: Lang = None,
) -> None:
    """Measure accuracy by token position modulo the stride, and give a verdict."""
    from kvphase.catalogue import message
    from kvphase.cli.checking import (
        frozen,
        labels_of,
        measured,
        only_frozen,
        planned,
        target_or_default,
    )
    from kvphase.errors import UsageError
    from kvphase.runs.budget import Budget, Prices
    from kvphase.runs.settings import Settings
    from kvphase.runtimes.adapters import Choice

    choice = Choice(runtime, model, tokenizer, exclusive)
    prices = Prices.parse(price) if price else None
    bounds = Budget.parse(budget, prices) if budget else None
    if dataset is not None:
        from kvphase.cli.datasets import Sitting, measured_file, only_dataset
        from kvphase.runs.dataset import Options

        only_dataset(
            {
                "--like": like,
                "--probe": probe,
                "--rungs": rungs,
                "--context": context,
                "--records": records,
                "--design": design is not Design.INSEQUENCE,
                "--cold": cold is not None,
                "--no-early": not early,
                "--no-adapt": not adapt,
                "--confirm": confirm is not Confirming.AUTO,
            }
        )
        labels = labels_of(label or [])
        options = Options(modulus, seed, questions, chat, labels, choice)
        measured_file(dataset, target, options, Sitting(bounds, out, resume, json, plan))
        return
    frozen_designs, frozen_seed, frozen_early = frozen(like, probe)
    if frozen_seed is not None:
        only_frozen(
            {
                "--seed": seed not in (0, frozen_seed),
                "--context": context,
                "--rungs": rungs,
                "--records": records,
                "--questions": questions,
                "--cold": cold is not None,
                "--design": design is not Design.INSEQUENCE,
                "--modulus": modulus != DEFAULT_MODULUS,
            }
        )
    if context is not None and rungs is not None:
        raise UsageError(message("run.context-and-rungs"))
    settings = Settings(
        context=context,
        records=records,
        questions=questions,
        design=design.value,
        modulus=modulus,
        seed=seed if frozen_seed is None else frozen_seed,
        cold=cold,
        chat=chat,
        rungs=() if rungs is None else tuple(rungs.split(",")),
        early=early and frozen_early,
        adapt=adapt,
        confirm=confirm.value,
        frozen=frozen_designs,
    )
    if plan:
        planned(target_or_default(target), settings, bounds, choice, json=json)
        return
    measured(
        target,
        settings,
        bounds,
        labels_of(label or []),
        choice,
        out=out,
        resume=resume,
        json=json,
    )
