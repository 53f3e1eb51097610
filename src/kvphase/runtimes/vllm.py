"""vLLM over HTTP: token ids in and out, scores by id, its own tokenizer and chat template.

Questions on one prefix find what earlier ones left in blocks of the cache, so nothing is sent to
warm it: with compressed KV the second question is the first that leaves the shared blocks behind,
the third the first that finds them. A cold question has a salt of its own. How much was found is
told only where the server was started with ``--enable-prompt-tokens-details``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.openai import Completions
from kvphase.runtimes.served import ASSUMED_CONTEXT
from kvphase.runtimes.words import PromptWords
from kvphase.types import Limits

if TYPE_CHECKING:
    from kvphase.runtimes.server import Server
    from kvphase.types import Ask

__all__ = ["ADAPTER", "VLlm"]

ABREAST = 16
"""Questions under way at once, at most: they are batched."""


class VLlm(Completions):
    """A vLLM server."""

    called: ClassVar[str] = "vLLM"
    able: ClassVar[Limits] = Limits(ASSUMED_CONTEXT, concurrency=ABREAST)

    grain: ClassVar[int] = 256
    """The largest block: DeepSeek-V4's."""
    settle: ClassVar[int] = 2

    def options(self, ask: Ask, salt: str | None) -> dict[str, Any]:
        """Ids of the prompt back, tokens of the scores by id, and the salt."""
        del ask
        found: dict[str, Any] = {
            "top_p": 1,
            "repetition_penalty": 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "add_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if self.scores:
            found["logprobs"] = self.scores
        if salt is not None:
            found["cache_salt"] = salt
        return found


async def recognises(server: Server) -> bool:
    """Whether the server's list of models says that vLLM owns them."""
    return any(card.owner == "vllm" for card in await server.cards())


async def connect(server: Server, choice: Choice) -> VLlm:
    """Open it.

    Raises:
        UsageError: a model must be named.
        RuntimeFault: it does not answer as vLLM does.
    """
    card = await server.pick(choice)
    words = choice.words() or await PromptWords.connect(server.client, card.id)
    version = (await server.page("version")).get("version")
    runtime = VLlm.of(
        server,
        words,
        card.id,
        context=card.context,
        build=version if isinstance(version, str) else None,
    )
    await runtime.negotiate()
    return runtime


ADAPTER = Adapter(recognises, connect)
