"""Finds the tokenizer that counts for a server: the one that was named, else the server's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runtimes.llamacpp_words import ContentWords
from kvphase.runtimes.words import PromptWords

if TYPE_CHECKING:
    from kvphase.runtimes.adapters import Choice
    from kvphase.runtimes.server import Server
    from kvphase.runtimes.words import Words

__all__ = ["words_of"]


async def words_of(server: Server, choice: Choice, model: str) -> Words | None:
    """The tokenizer to count with; None if the server has none and none was named.

    Raises:
        UsageError: there is no tokenizer of the name that was given.
    """
    local = choice.words()
    if local is not None:
        return local
    if not await server.takes("tokenize"):
        return None
    try:
        return await PromptWords.connect(server.client, model)
    except TransientFault:
        raise
    except RuntimeFault:
        return await _content(server)


async def _content(server: Server) -> Words | None:
    try:
        return await ContentWords.connect(server.client)
    except TransientFault:
        raise
    except RuntimeFault:
        return None
