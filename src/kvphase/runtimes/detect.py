"""Finds out what a target is and opens it."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.adapters import Choice, find

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from importlib.metadata import EntryPoint

    import httpx2

    from kvphase.runtimes.server import Server
    from kvphase.types import Runtime

    Waiting = Callable[[float], None]
    """Told again and again, with the seconds so far, while a server loads its model."""

HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+/?")
LOADING_SECONDS = 60.0
"""So long a server that loads its model is waited for."""
LOADING_PAUSE = 1.0


def open_runtime(
    target: str,
    *,
    choice: Choice | None = None,
    waiting: Waiting | None = None,
) -> AbstractAsyncContextManager[Runtime]:
    """The runtime that ``target`` names, to be used in ``async with``.

    Args:
        target: ``toy:NAME``, ``http://HOST:PORT``, ``https://...``, ``HOST:PORT``, or
            ``KIND:REST`` where an installed package opens that kind (``lab:CHECKPOINT``).
        choice: What the user says of the server: its kind, the model, a tokenizer.
        waiting: Called about once a second, with the seconds so far, while the server loads its
            model.

    Raises:
        UsageError: the target is none of these, or is no server though one was described.
        RuntimeFault: on entering, if what is there cannot be measured.
    """
    choice = choice or Choice()
    kind, mark, rest = target.partition(":")
    plugin = plugins().get(kind) if mark and not rest.startswith("//") else None
    if (target.startswith("toy:") or plugin) and replace(choice, exclusive=False) != Choice():
        raise UsageError(message("runtime.only-servers"))
    if target.startswith("toy:"):
        return _toy(rest)
    if plugin is not None:
        try:
            opened: AbstractAsyncContextManager[Runtime] = plugin.load()(rest)
        except ImportError as error:
            raise UsageError(message("runtime.extra", kind=kind)) from error
        return opened
    if HOST_AND_PORT.fullmatch(target):
        target = f"http://{target}"
    if target.lower().startswith(("http://", "https://")):
        return _server(target.rstrip("/").removesuffix("/v1"), choice, waiting)
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
async def _server(address: str, choice: Choice, waiting: Waiting | None) -> AsyncIterator[Runtime]:
    from kvphase.runtimes.http import new_client  # late: needs the HTTP client

    async with new_client(address) as client:
        yield await recognise(client, choice, waiting)


async def recognise(
    client: httpx2.AsyncClient, choice: Choice | None = None, waiting: Waiting | None = None
) -> Runtime:
    """The runtime behind ``client``, once its model is loaded.

    Args:
        client: Of the server.
        choice: As for `open_runtime`.
        waiting: As for `open_runtime`.

    Raises:
        UsageError: a model or a tokenizer must be named.
        RuntimeFault: nothing there can be measured; the message says what was found.
    """
    from kvphase.runtimes.http import Unreachable, said
    from kvphase.runtimes.server import Server

    server = Server(client)
    try:
        await _loaded(server, waiting)
        return await find(server, choice or Choice())
    except (Unreachable, _StillLoading):
        raise
    except TransientFault as fault:
        raise RuntimeFault(message("runtime.not-ready", fault=said(fault))) from fault


class _StillLoading(RuntimeFault):
    """The server was waited for in vain."""


async def _loaded(server: Server, waiting: Waiting | None) -> None:
    """Wait as long as the server says that it loads its model; not all have a page for that."""
    from kvphase.runtimes.http import Loading

    started = time.monotonic()
    while True:
        try:
            await server.page("health")
            return
        except Loading as fault:
            spent = time.monotonic() - started
            if spent >= LOADING_SECONDS:
                seconds = round(LOADING_SECONDS)
                raise _StillLoading(message("runtime.loading", seconds=seconds)) from fault
        if waiting is not None:
            waiting(spent)
        await asyncio.sleep(min(LOADING_PAUSE, LOADING_SECONDS - spent))
