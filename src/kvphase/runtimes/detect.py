"""Finds out what a target is and opens it."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kvphase.errors import RuntimeFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    import httpx2

    from kvphase.types import Runtime

ACCEPTED = "toy:NAME, or the address of a llama-server such as http://127.0.0.1:8080"
HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+/?")


def open_runtime(target: str) -> AbstractAsyncContextManager[Runtime]:
    """The runtime that ``target`` names, to be used in ``async with``.

    Args:
        target: ``toy:NAME``, ``http://HOST:PORT``, ``https://...`` or ``HOST:PORT``.

    Raises:
        UsageError: the target is none of these.
        RuntimeFault: on entering, if what is there cannot be measured.
    """
    if target.startswith("toy:"):
        return _toy(target.removeprefix("toy:"))
    if HOST_AND_PORT.fullmatch(target):
        target = f"http://{target}"
    if target.lower().startswith(("http://", "https://")):
        return _server(target.rstrip("/").removesuffix("/v1"))
    from kvphase.runtimes.http import shown  # late: needs the HTTP client

    raise UsageError(f"{shown(target)!r} is not a target; accepted are {ACCEPTED}")


@asynccontextmanager
async def _toy(name: str) -> AsyncIterator[Runtime]:
    from kvphase.runtimes.toy import ToyRuntime  # late: needs numpy

    async with ToyRuntime.load(name) as runtime:
        yield runtime


@asynccontextmanager
async def _server(address: str) -> AsyncIterator[Runtime]:
    from kvphase.runtimes.http import new_client  # late: needs the HTTP client
    from kvphase.runtimes.llamacpp import LlamaCpp

    async with new_client(address) as client:
        await recognise(client)
        yield await LlamaCpp.connect(client)


async def recognise(client: httpx2.AsyncClient) -> None:
    """Make sure that a llama-server with a loaded model is behind ``client``.

    Raises:
        RuntimeFault: it is something else; the message says what was found.
    """
    from kvphase.errors import TransientFault
    from kvphase.runtimes.http import Unreachable, get_json

    try:
        await get_json(client, "health")
        await get_json(client, "props")
    except Unreachable:
        raise
    except TransientFault as fault:
        raise RuntimeFault(f"the server is not ready: {fault}") from fault
    except RuntimeFault as fault:
        if await _speaks_openai(client):
            raise RuntimeFault(
                "the server speaks OpenAI's API only; kvphase 0.1 measures llama-server"
            ) from fault
        raise RuntimeFault(f"this is not a llama-server: {fault}") from fault


async def _speaks_openai(client: httpx2.AsyncClient) -> bool:
    """Whether the server lists models as OpenAI's API does."""
    from kvphase.runtimes.http import get_json

    try:
        return isinstance((await get_json(client, "v1/models")).get("data"), list)
    except RuntimeFault:
        return False
