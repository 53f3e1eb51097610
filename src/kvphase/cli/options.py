"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvphase.catalogue import Language, choose


def _choose(language: Language | None) -> Language | None:
    choose(language)
    return language


Lang = Annotated[
    Language | None,
    typer.Option(
        "--lang",
        # Before the others, so that what is wrong with them is said in this language too.
        is_eager=True,
        callback=_choose,
        show_default=False,
        help="Language of the output.  [default: the system's]",
    ),
]
Bounds = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        show_default=False,
        help="15m, 2000q, 3Mtok or $2; may be repeated.  [default: 15m]",
    ),
]
Price = Annotated[
    str | None,
    typer.Option("--price", help="PROMPT,ANSWER[,CACHED] in dollars per million tokens."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", show_default=False, help="Run file.  [default: a new one in kvphase-runs]"
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run file given by --out.")]
Prompt = Annotated[
    str,
    typer.Argument(
        help="A text, messages or a whole request as JSON, a suite as YAML; - for stdin."
    ),
]
Match = Annotated[
    str,
    typer.Option(
        "--match", help="exact, contains, regex, choice, json, or command:CMD (exit 0: right)."
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option("--tokens", min=1, help="Answer tokens to generate.  [default: as fits --match]"),
]
FillerSeed = Annotated[int, typer.Option("--seed", min=0, help="Decides the filler's words.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout and nothing else.")
]

ServerKind = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        show_default=False,
        help="Kind of server, such as vllm or openai.  [default: what the server says]",
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", show_default=False, help="Which model, where a server has several."),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        show_default=False,
        help="For a server without one: a tokenizer.json, a model's folder, a GGUF, deepseek-v4.",
    ),
]

__all__ = [
    "Bounds",
    "FillerSeed",
    "Json",
    "Lang",
    "Match",
    "Model",
    "Out",
    "Price",
    "Prompt",
    "Resume",
    "ServerKind",
    "Tokenizer",
    "Tokens",
]
