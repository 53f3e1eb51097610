"""DeepSeek's own API: chats of text, up to 20 scores with thinking off, cache counts.

Text is counted with the packaged tokenizer (the extra ``deepseek``). The template stands on the
server: where the count of prompt tokens agrees with the packaged encoding that is no proof of where
the user's text begins, so positions are right up to one unknown constant, and a report must not
name residues as absolute.

The cache keeps whole units: a first question stores its prompt, a second on the same prefix misses
but stores what both have in common, a third finds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.chat import Chat
from kvphase.runtimes.words import LocalWords
from kvphase.tokens.local import load

if TYPE_CHECKING:
    from kvphase.runtimes.server import Server

__all__ = ["ADAPTER", "DeepSeek"]

OWNER = "deepseek"
TOKENIZER = "deepseek-v4.1"
CONTEXT = 1_000_000
"""Tokens that fit, by the documentation; the list of models does not say."""


class DeepSeek(Chat):
    """DeepSeek's API."""

    called: ClassVar[str] = "DeepSeek API"

    path: ClassVar[str] = "chat/completions"
    settle: ClassVar[int] = 2
    grain: ClassVar[int] = 64

    def thinking_off(self) -> dict[str, Any]:
        """Thinking is on by default."""
        return {"thinking": {"type": "disabled"}}

    async def negotiate(self) -> None:
        """As `Chat.negotiate`; where the user's text begins stays unknown.

        Raises:
            RuntimeFault: the server does not answer.
        """
        await super().negotiate()
        self._limits = replace(self._limits, offset_known=False)


async def recognises(server: Server) -> bool:
    """Whether the server's list of models says that DeepSeek owns them."""
    return any(card.owner == OWNER for card in await server.cards())


async def connect(server: Server, choice: Choice) -> DeepSeek:
    """Open it.

    Raises:
        UsageError: the extra ``deepseek`` is not installed, or a model must be named.
        RuntimeFault: it does not answer as DeepSeek's API does.
    """
    card = await server.pick(choice)
    words = choice.words() or LocalWords(load(TOKENIZER))
    runtime = DeepSeek.of(server, words, card.id, context=card.context or CONTEXT)
    await runtime.negotiate()
    return runtime


ADAPTER = Adapter(recognises, connect)
