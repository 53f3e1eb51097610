"""Starts the application on a socket: for a user until Ctrl-C, or for a test's ``with`` block."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import uvicorn
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.h11_impl import H11Protocol

from kvphase.errors import RuntimeFault, UsageError
from kvphase.serve.app import build_app, create_app

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from starlette.applications import Starlette

    from kvphase.runtimes.toy import ToyEngine
    from kvphase.serve.faults import Faults

__all__ = ["listening", "make_app", "run", "serving"]

START_SECONDS = 30.0


def run(
    toy: str | ToyEngine,
    host: str = "127.0.0.1",
    port: int = 0,
    faults: Faults | None = None,
    throttle: float | None = None,
    dialect: str = "llama-server",
) -> None:
    """Serve a toy model until Ctrl-C; its address goes to stderr once it listens.

    Args:
        toy: A shipped toy model's name, with or without ``toy:``, or an engine of one's own.
        host: Address to listen on.
        port: 0 takes a free one.
        faults: What goes wrong; nothing by default.
        throttle: Prompt tokens evaluated per second at most; None as fast as it goes.
        dialect: Which server's API is spoken: one of `DIALECTS`.

    Raises:
        UsageError: there is no such toy model or dialect, or the address cannot be listened on.
    """
    with _listen(host, port) as listener:
        server = _Server(make_app(toy, faults, throttle, dialect))
        server.greeting = f"{server.model} (toy model) listens on {_url(listener)}\n"
        # One thread does the arithmetic, as in process: a toy's matrices are too small to share.
        one = threadpool_limits(limits=1, user_api="blas")
        with contextlib.suppress(KeyboardInterrupt), one:
            server.run(sockets=[listener])


@contextlib.contextmanager
def serving(
    toy: str | ToyEngine,
    faults: Faults | None = None,
    throttle: float | None = None,
    dialect: str = "llama-server",
) -> Iterator[str]:
    """Serve a toy model from a thread of this process; the value is its address.

    Args:
        toy: A shipped toy model's name, or an engine of one's own.
        faults: What goes wrong; nothing by default.
        throttle: Prompt tokens evaluated per second at most; None as fast as it goes.
        dialect: Which server's API is spoken: one of `DIALECTS`.
    """
    with listening(make_app(toy, faults, throttle, dialect)) as address:
        yield address


@contextlib.contextmanager
def listening(app: Starlette) -> Iterator[str]:
    """Serve an application from a thread of this process; the value is its address."""
    server = _Server(app)
    with _listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            _wait(server, thread)
            yield _url(listener)
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)


def make_app(
    toy: str | ToyEngine, faults: Faults | None, throttle: float | None, dialect: str
) -> Starlette:
    """The application over a shipped toy model or an engine of one's own."""
    if isinstance(toy, str):
        return create_app(toy, faults, throttle, dialect)
    return build_app(toy, faults, throttle, dialect)


class _Server(uvicorn.Server):
    """A quiet server that says one line when it listens."""

    greeting = ""

    def __init__(self, app: Starlette) -> None:
        desk = app.state.desk
        self.model: str = desk.engine.name

        class Refusing(H11Protocol):
            """Closes the connection on whatever arrives, while that fault is on."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if self._refuses():
                    transport.abort()

            def data_received(self, data: bytes) -> None:
                if self._refuses():
                    self.transport.abort()
                else:
                    super().data_received(data)

            def _refuses(self) -> bool:
                return bool(desk.faults.refuse and desk.faults.active(desk.requests))

        options: dict[str, Any] = {"http": Refusing}
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="critical",  # a broken connection is nothing to report
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,  # a stream to a client that stays must not hold it up
                **options,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        sys.stderr.write(self.greeting)
        sys.stderr.flush()


def _listen(host: str, port: int) -> socket.socket:
    """Open the listening socket, so that its port is known before anything is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {host} port {port}: {error}") from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeFault("the toy server did not start")
        time.sleep(0.005)
