"""A chat template around a user's text, found by rendering a marker in the text's place."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.types import Template

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

__all__ = ["MARKER", "split"]

MARKER = "kvphase7marker1here"
"""Stands for the user's text while a chat template is rendered."""


class _Tokenize(Protocol):
    def __call__(
        self, texts: Sequence[str], *, special: bool = False
    ) -> Awaitable[list[list[int]]]: ...


async def split(rendered: str, tokenize: _Tokenize) -> Template:
    """The template around `MARKER`, which was rendered as the user's text.

    Args:
        rendered: The whole prompt without BOS.
        tokenize: Of the same model.

    Raises:
        UsageError: the text does not stand there just once.
    """
    head, *rest = rendered.split(MARKER)
    if len(rest) != 1:
        raise UsageError(message("tokenizer.odd-template"))
    head_ids, tail_ids = await tokenize([head, rest[0]], special=True)
    digest = hashlib.sha256(f"{head}\0{rest[0]}".encode()).hexdigest()[:16]
    return Template(tuple(head_ids), tuple(tail_ids), head, rest[0], digest)
