"""antirez' ``ds4-server``: DeepSeek-V4 behind chats of text, cache counts, no scores.

Prompts are counted with the packaged tokenizer of DeepSeek-V4 and its chat encoding without
thinking (the extra ``deepseek``), unless another is named; the server's own count of prompt tokens
must agree. The server keeps one sequence, so questions on one prefix find it from the second on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.chat import Chat
from kvphase.runtimes.words import LocalWords
from kvphase.tokens.local import load

if TYPE_CHECKING:
    from kvphase.runtimes.server import Server
    from kvphase.types import Ask

__all__ = ["ADAPTER", "Ds4"]

OWNER = "ds4.c"
TOKENIZER = "deepseek-v4"


class Ds4(Chat):
    """A ds4-server."""

    called: ClassVar[str] = "ds4-server"

    scores: int = 0

    def thinking_off(self) -> dict[str, Any]:
        """Thinking is on by default."""
        return {"think": False}

    def options(self, ask: Ask) -> dict[str, Any]:
        """Nothing cut off but the best token."""
        del ask
        return {"min_p": 0, "top_p": 1}


async def recognises(server: Server) -> bool:
    """Whether the server's list of models says that ds4 owns them."""
    return any(card.owner == OWNER for card in await server.cards())


async def connect(server: Server, choice: Choice) -> Ds4:
    """Open it.

    Raises:
        UsageError: the extra ``deepseek`` is not installed, or a model must be named.
        RuntimeFault: it does not answer as ds4-server does.
    """
    card = await server.pick(choice)
    words = choice.words() or LocalWords(load(TOKENIZER))
    runtime = Ds4.of(server, words, card.id, context=card.context)
    await runtime.negotiate()
    return runtime


ADAPTER = Adapter(recognises, connect)
