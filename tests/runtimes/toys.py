"""Questions to a served toy, the same for every dialect, and what goes over the wire."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2

from kvphase.errors import TransientFault
from kvphase.runtimes.detect import recognise
from kvphase.runtimes.http import new_client
from kvphase.runtimes.toy import ToyWords
from kvphase.testing import double, write_tokenizer
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kvphase.runtimes.adapters import Choice
    from kvphase.types import Reply, Runtime

FACTS = " cat: Alice; dog: Bob; cow: Carol;"
KEYS = (" cat", " dog", " cow")
PADS = (3, 20, 80)
TEMPLATE = "{{ bos_token }}{{ messages[-1].content }}"
"""The toys' chat template: nothing but BOS and the text."""


def questions(bos: tuple[int, ...] = (0,), *arms: Arm) -> list[Ask]:
    """Three contexts of different lengths, three questions each, for every arm."""
    encode = ToyWords.load().encode
    return [
        Ask(
            id=f"{pad}{key}{arm}",
            prefix=(*bos, *encode(" and" * pad + FACTS)),
            suffix=tuple(encode(f"{key}:")),
            target=len(bos) + pad,
            expected=" Alice",
            candidates=(" Alice", " Dave"),
            arm=arm,
            item=0,
            block=0,
            context=pad,
            pad=pad,
        )
        for pad in PADS
        for arm in arms or (Arm.SCREEN,)
        for key in KEYS
    ]


def tokenizer(folder: Path, *, template: bool = False) -> str:
    """The toys' tokenizer for ``--tokenizer``: a file, or a folder with the chat template."""
    write_tokenizer(folder / "tokenizer.json")
    if not template:
        return str(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    return str(folder)


class Recorder(httpx2.AsyncHTTPTransport):
    """Notes what is asked of a server, and can answer in its place."""

    def __init__(self, instead: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.instead = instead or {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Note the request; answer it from ``instead`` or send it."""
        body = json.loads(await request.aread() or b"{}")
        self.calls.append((request.url.path, body))
        if request.url.path in self.instead:
            return httpx2.Response(200, json=self.instead[request.url.path], request=request)
        return await super().handle_async_request(request)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """What was posted to ``path``."""
        return [body for where, body in self.calls if where == path]


def measured(
    dialect: str,
    work: Callable[[Runtime], Awaitable[Any]],
    *,
    choice: Choice | None = None,
    faults: str = "",
    recorder: Recorder | None = None,
) -> Any:  # noqa: ANN401 - whatever ``work`` gives
    """What ``work`` gives with the runtime of a served toy, found as a user's is."""

    async def connected(url: str) -> Any:  # noqa: ANN401
        async with new_client(url, recorder) as client:
            return await work(await recognise(client, choice))

    with double("full", dialect=dialect, faults=faults) as server:
        return asyncio.run(connected(server.url))


async def same(runtime: Runtime) -> Runtime:
    """The runtime itself, to see what it says of itself."""
    return runtime


async def answered(runtime: Runtime) -> list[Reply]:
    """Its answers to the questions; what broke off is asked once more."""
    return [await _patiently(runtime, ask) for ask in questions(runtime.limits.bos)]


async def _patiently(runtime: Runtime, ask: Ask) -> Reply:
    try:
        return await runtime.complete(ask)
    except TransientFault:
        return await runtime.complete(ask)
