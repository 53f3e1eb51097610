"""Whose tokenizer counts: the server's own, or a local one where the server has none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.http import AT_ONCE, post_json, said
from kvphase.runtimes.llamacpp_wire import read
from kvphase.tokens.template import MARKER, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from kvphase.tokens.local import LocalTokenizer
    from kvphase.types import Template

__all__ = ["LocalWords", "PromptWords", "Words"]

THINKING_OFF = {"enable_thinking": False, "thinking": False}
"""What chat templates call it; one that knows neither ignores both."""


class Words(Protocol):
    """Text to token ids and back, by one model's rules."""

    source: str
    """Where it comes from, as it may be shown."""
    bos: tuple[int, ...]
    """What every prompt of this model starts with; empty if nothing."""
    bos_text: str
    """How BOS is spelled; empty if that is not known."""
    has_template: bool
    """Whether the chat template is known."""

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        ...

    async def text_of(self, ids: Sequence[int]) -> str:
        """The text that is read as exactly ``ids``, special tokens spelled out.

        Raises:
            RuntimeFault: there is none.
        """
        ...

    async def template(self) -> Template:
        """The chat template around a user's text, thinking off.

        Raises:
            UsageError: there is none, or it changes the user's text.
        """
        ...

    async def render(self, body: dict[str, Any]) -> str:
        """A request's messages as the text that the model reads, BOS left out.

        Raises:
            UsageError: there is no template, or it refuses these messages.
        """
        ...


class LocalWords:
    """A tokenizer on this machine."""

    def __init__(self, tokenizer: LocalTokenizer) -> None:
        """Use ``tokenizer``; `kvphase.tokens.local.load` reads one."""
        self._tokenizer = tokenizer
        self.source: str = tokenizer.source
        self.bos: tuple[int, ...] = tokenizer.bos
        self.bos_text: str = tokenizer.bos_text
        self.has_template: bool = tokenizer.has_template

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """As `Words.tokenize`."""
        return await self._tokenizer.tokenize(texts, special=special)

    async def text_of(self, ids: Sequence[int]) -> str:
        """As `Words.text_of`."""
        return await self._tokenizer.text_of(ids)

    async def template(self) -> Template:
        """As `Words.template`."""
        return await self._tokenizer.template()

    async def render(self, body: dict[str, Any]) -> str:
        """As `Words.render`."""
        return self._tokenizer.render(body)


class _Tokens(BaseModel):
    tokens: list[int]


class _Text(BaseModel):
    prompt: str | None = None  # vLLM
    text: str | None = None  # SGLang


class PromptWords:
    """The tokenizer of a server whose ``/tokenize`` takes a ``prompt``: vLLM's and SGLang's.

    It reads what looks like a special token as one, whatever the text around it.
    """

    bos_text: str = ""

    def __init__(self, client: httpx2.AsyncClient, model: str, bos: tuple[int, ...]) -> None:
        """Use `connect`, which finds out ``bos``."""
        self._client = client
        self._model = model
        self._places = asyncio.Semaphore(AT_ONCE)
        self.source: str = message("endpoint.tokenizer.server")
        self.bos: tuple[int, ...] = bos
        self.has_template: bool = True

    @classmethod
    async def connect(cls, client: httpx2.AsyncClient, model: str) -> PromptWords:
        """Ask the server for its BOS.

        Raises:
            RuntimeFault: it has no tokenizer to ask.
        """
        made = cls(client, model, ())
        plain, whole = await made._ids("a", special=False), await made._ids("a", special=True)
        if not plain:  # it took something else for the text
            raise RuntimeFault(message("runtime.odd-field", field="tokens"))
        extra = len(whole) - len(plain)
        if extra > 0 and whole[extra:] == plain:
            made.bos = tuple(whole[:extra])
        return made

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """As `Words.tokenize`; special tokens are always parsed, our own words hold none."""
        del special
        return list(await asyncio.gather(*(self._ids(text, special=False) for text in texts)))

    async def _ids(self, text: str, *, special: bool) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": special}
        async with self._places:
            return read(_Tokens, await post_json(self._client, "tokenize", body)).tokens

    async def text_of(self, ids: Sequence[int]) -> str:
        """As `Words.text_of`."""
        body = {"model": self._model, "tokens": list(ids), "skip_special_tokens": False}
        answer = read(_Text, await post_json(self._client, "detokenize", body))
        text = answer.text if answer.prompt is None else answer.prompt
        if text is None or (await self.tokenize([text]))[0] != list(ids):
            raise RuntimeFault(message("runtime.unspeakable", size=len(ids)))
        return text

    async def template(self) -> Template:
        """As `Words.template`."""
        text = await self.render({"messages": [{"role": "user", "content": MARKER}]})
        return await split(text, self.tokenize)

    async def render(self, body: dict[str, Any]) -> str:
        """As `Words.render`: the server tokenizes the messages, and spells the ids out again."""
        settings = {**THINKING_OFF, **body.get("chat_template_kwargs", {})}
        wanted = {**body, "model": self._model, "chat_template_kwargs": settings}
        try:
            answer = await post_json(self._client, "tokenize", wanted)
        except TransientFault as fault:
            raise RuntimeFault(said(fault)) from fault
        except RuntimeFault as fault:
            raise UsageError(message("runtime.no-template", fault=said(fault))) from fault
        ids = read(_Tokens, answer).tokens
        size = len(self.bos)
        return await self.text_of(ids[size:] if tuple(ids[:size]) == self.bos else ids)
