"""Options that several commands share."""

from __future__ import annotations

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

__all__ = ["Lang"]
