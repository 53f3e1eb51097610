"""The tokenizer and the chat template of a llama-server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.http import AT_ONCE, post_json, said
from kvphase.runtimes.llamacpp_wire import Prompt, Tokens, read
from kvphase.tokens.template import MARKER, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from kvphase.types import Template

__all__ = ["ContentWords"]


class _Content(BaseModel):
    content: str


class ContentWords:
    """The tokenizer of a server whose ``/tokenize`` takes ``content``."""

    has_template: bool = True

    def __init__(self, client: httpx2.AsyncClient, bos: tuple[int, ...], bos_text: str) -> None:
        """Use `connect`, which finds out what BOS is."""
        self._client = client
        self._places = asyncio.Semaphore(AT_ONCE)
        self.source: str = message("endpoint.tokenizer.server")
        self.bos: tuple[int, ...] = bos
        self.bos_text: str = bos_text

    @classmethod
    async def connect(cls, client: httpx2.AsyncClient, bos_text: str | None = None) -> ContentWords:
        """Ask the server for its BOS.

        Args:
            client: Of the server.
            bos_text: How BOS is spelled, where that is known.

        Raises:
            RuntimeFault: it has no tokenizer to ask.
        """
        body = {"content": "", "add_special": True}
        made = cls(
            client, tuple(read(Tokens, await post_json(client, "tokenize", body)).tokens), ""
        )
        if made.bos:
            made.bos_text = await made._spelled(made.bos) if bos_text is None else bos_text
        return made

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        return list(await asyncio.gather(*(self._tokens(text, special) for text in texts)))

    async def _tokens(self, text: str, special: bool) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": special}
        async with self._places:
            return read(Tokens, await post_json(self._client, "tokenize", body)).tokens

    async def text_of(self, ids: Sequence[int]) -> str:
        """As `kvphase.runtimes.words.Words.text_of`."""
        text = await self._spelled(ids)
        if (await self.tokenize([text], special=True))[0] != list(ids):
            raise RuntimeFault(message("runtime.unspeakable", size=len(ids)))
        return text

    async def _spelled(self, ids: Sequence[int]) -> str:
        return read(
            _Content, await post_json(self._client, "detokenize", {"tokens": list(ids)})
        ).content

    async def template(self) -> Template:
        """The chat template around a user's text, thinking off, as the server renders it.

        Raises:
            UsageError: the server has none, or it changes the user's text.
        """
        text = await self.render({"messages": [{"role": "user", "content": MARKER}]})
        return await split(text, self.tokenize)

    async def render(self, body: dict[str, Any]) -> str:
        """A request as the text that the model reads, BOS left out; thinking off unless it says so.

        Args:
            body: ``messages`` and what else moves positions: tools, template settings.

        Raises:
            UsageError: the server has no template, or it refuses these messages.
        """
        settings = {"enable_thinking": False, **body.get("chat_template_kwargs", {})}
        wanted = {**body, "chat_template_kwargs": settings}
        try:
            answer = await post_json(self._client, "apply-template", wanted)
        except TransientFault as fault:
            raise RuntimeFault(said(fault)) from fault
        except RuntimeFault as fault:
            raise UsageError(message("runtime.no-template", fault=said(fault))) from fault
        text = read(Prompt, answer).prompt
        return text.removeprefix(self.bos_text) if self.bos else text
