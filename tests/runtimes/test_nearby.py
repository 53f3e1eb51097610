"""What listens on this machine's usual ports."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

from kvphase.catalogue import Catalogue
from kvphase.runtimes import nearby as module
from kvphase.runtimes.nearby import nearby

if TYPE_CHECKING:
    import pytest


def test_only_what_listens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as closed,
    ):
        port, free = one.getsockname()[1], closed.getsockname()[1]
        closed.close()
        monkeypatch.setattr(module, "PORTS", {free: "Nobody", port: "llama-server"})
        found = asyncio.run(nearby())
        assert found == [f"http://127.0.0.1:{port} (llama-server's usual port)"]
        assert "常用端口" in Catalogue("zh").of(found[0])
        one.settimeout(5)
        connection, _ = one.accept()
        with connection:
            assert connection.recv(100) == b""  # nothing was sent


def test_all_ports_are_tried_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio, "open_connection", never)
    started = time.monotonic()
    assert asyncio.run(nearby(0.1)) == []
    assert time.monotonic() - started < 2


def test_the_usual_ports() -> None:
    assert module.PORTS[8080] == "llama-server"
    assert {11434, 8000, 30000, 1234} < set(module.PORTS)
