"""Which model servers seem to run on this machine: who listens on the ports they usually take."""

from __future__ import annotations

import asyncio
import contextlib

from kvphase.catalogue import message

LOOPBACK = "127.0.0.1"
PORTS = {
    8080: "llama-server",
    11434: "Ollama",
    1234: "LM Studio",
    8000: "vLLM",
    30000: "SGLang",
    5001: "KoboldCpp",
    8081: "a second llama-server",
}


async def nearby(timeout: float = 0.3) -> list[str]:  # noqa: ASYNC109 - a limit for each port
    """Addresses on this machine where something listens, with the port's usual owner.

    A connection is made and closed at once; nothing is sent, so nothing is known of what listens.

    Args:
        timeout: Seconds to wait for each port; all are tried together.
    """
    open_ports = await asyncio.gather(*(_listens(port, timeout) for port in PORTS))
    return [
        message("runtime.usual-port", address=f"http://{LOOPBACK}:{port}", owner=owner)
        for (port, owner), is_open in zip(PORTS.items(), open_ports, strict=True)
        if is_open
    ]


async def _listens(port: int, limit: float) -> bool:
    """Whether a connection to the port comes about."""
    try:
        async with asyncio.timeout(limit):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


__all__ = ["nearby"]
