"""Finds out what a target is and opens it."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from importlib.metadata import EntryPoint

    import httpx2

    from kvphase.types import Runtime

    Waiting = Callable[[float], None]
    """Told again and again, with the seconds so far, while a server loads its model."""

HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+/?")
LOADING_SECONDS = 60.0
"""So long a server that loads its model is waited for."""
LOADING_PAUSE = 1.0


def open_runtime(
    target: str, *, exclusive: bool = False, waiting: Waiting | None = None
) -> AbstractAsyncContextManager[Runtime]:
    """The runtime that ``target`` names, to be used in ``async with``.

    Args:
        target: ``toy:NAME``, ``http://HOST:PORT``, ``https://...``, ``HOST:PORT``, or
            ``KIND:REST`` where an installed package opens that kind (``lab:CHECKPOINT``).
        exclusive: Nobody else uses the server: cold asks may take a second slot without regard
            for the conversation that it may hold.
        waiting: Called about once a second, with the seconds so far, while the server loads its
            model.

    Raises:
        UsageError: the target is none of these.
        RuntimeFault: on entering, if what is there cannot be measured.
    """
    if target.startswith("toy:"):
        return _toy(target.removeprefix("toy:"))
    kind, mark, rest = target.partition(":")
    if mark and not rest.startswith("//") and (plugin := plugins().get(kind)) is not None:
        try:
            opened: AbstractAsyncContextManager[Runtime] = plugin.load()(rest)
        except ImportError as error:
            raise UsageError(message("runtime.extra", kind=kind)) from error
        return opened
    if HOST_AND_PORT.fullmatch(target):
        target = f"http://{target}"
    if target.lower().startswith(("http://", "https://")):
        return _server(target.rstrip("/").removesuffix("/v1"), exclusive, waiting)
    from kvphase.runtimes.http import shown  # late: needs the HTTP client

    accepted = message("runtime.accepted")
    raise UsageError(message("runtime.target", target=shown(target), accepted=accepted))


def plugins() -> dict[str, EntryPoint]:
    """Kinds of targets that installed packages open: the entry points of ``kvphase.runtimes``.

    Each names a function that takes what stands behind the colon and returns an asynchronous
    context manager of a `Runtime`.
    """
    from importlib.metadata import entry_points  # late: reads the disk

    return {entry.name: entry for entry in entry_points(group="kvphase.runtimes")}


@asynccontextmanager
async def _toy(name: str) -> AsyncIterator[Runtime]:
    from kvphase.runtimes.toy import ToyRuntime  # late: needs numpy

    async with ToyRuntime.load(name) as runtime:
        yield runtime


@asynccontextmanager
async def _server(address: str, exclusive: bool, waiting: Waiting | None) -> AsyncIterator[Runtime]:
    from kvphase.runtimes.http import new_client  # late: needs the HTTP client
    from kvphase.runtimes.llamacpp import LlamaCpp

    async with new_client(address) as client:
        await recognise(client, waiting)
        yield await LlamaCpp.connect(client, exclusive=exclusive)


async def recognise(client: httpx2.AsyncClient, waiting: Waiting | None = None) -> None:
    """Make sure that a llama-server with a loaded model is behind ``client``.

    Args:
        client: Of the server.
        waiting: As for `open_runtime`.

    Raises:
        RuntimeFault: it is something else; the message says what was found.
    """
    from kvphase.runtimes.http import Unreachable, get_json, said

    try:
        await _loaded(client, waiting)
        await get_json(client, "props")
    except (Unreachable, _StillLoading):
        raise
    except TransientFault as fault:
        raise RuntimeFault(message("runtime.not-ready", fault=said(fault))) from fault
    except RuntimeFault as fault:
        if await _speaks_openai(client):
            raise RuntimeFault(message("runtime.openai-only")) from fault
        raise RuntimeFault(message("runtime.not-llama-server", fault=said(fault))) from fault


class _StillLoading(RuntimeFault):
    """The server was waited for in vain."""


async def _loaded(client: httpx2.AsyncClient, waiting: Waiting | None) -> None:
    """Wait until the server is healthy, as long as it says that it loads its model."""
    from kvphase.runtimes.http import Loading, get_json

    started = time.monotonic()
    while True:
        try:
            await get_json(client, "health")
            return
        except Loading as fault:
            spent = time.monotonic() - started
            if spent >= LOADING_SECONDS:
                seconds = round(LOADING_SECONDS)
                raise _StillLoading(message("runtime.loading", seconds=seconds)) from fault
        if waiting is not None:
            waiting(spent)
        await asyncio.sleep(min(LOADING_PAUSE, LOADING_SECONDS - spent))


async def _speaks_openai(client: httpx2.AsyncClient) -> bool:
    """Whether the server lists models as OpenAI's API does."""
    from kvphase.runtimes.http import get_json

    try:
        return isinstance((await get_json(client, "v1/models")).get("data"), list)
    except RuntimeFault:
        return False
