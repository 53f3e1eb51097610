"""A ``tokenizer.json`` in place of a target: it tells positions and answers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.tokens.file import FileTokenizer
from kvphase.types import About, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.types import Ask, Template

_ENDLESS = 2**31 - 2
"""Context of a tokenizer: nobody said how much the model holds."""


class TokenizerOnly:
    """The part of a runtime that a layout needs, from a file."""

    traffic: int | None = None

    def __init__(self, path: Path) -> None:
        """Read ``path``.

        Raises:
            UsageError: there is no such file, or it is no tokenizer.
        """
        self._tokenizer = FileTokenizer(path)
        self.about: About = About(target=path.name, runtime="tokenizer.json")
        self.limits: Limits = Limits(context_tokens=_ENDLESS, bos=self._tokenizer.bos)

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        return await self._tokenizer.tokenize(texts, special=special)

    async def template(self) -> Template:
        """A tokenizer's file holds no chat template.

        Raises:
            UsageError: always.
        """
        raise self._refused()

    async def complete(self, ask: Ask) -> NoReturn:
        """A tokenizer answers nothing.

        Raises:
            UsageError: always.
        """
        del ask
        raise self._refused()

    def _refused(self) -> UsageError:
        return UsageError(message("layout.tokenizer-only", name=self.about.target))


__all__ = ["TokenizerOnly"]
