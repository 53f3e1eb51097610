"""Servers that are silent, drip, never end or are not ready: one sentence, and soon."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runtimes import detect, http, llamacpp
from kvphase.runtimes.detect import open_runtime, recognise
from kvphase.runtimes.http import get_json, new_client, post_json
from runtimes.doubles import Server, ask, complete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CALL_SECONDS", 0.4)
    monkeypatch.setattr(http, "BODY_BYTES", 100_000)
    monkeypatch.setattr(llamacpp, "ANSWER_SECONDS", 0.4)
    monkeypatch.setattr(llamacpp, "ANSWER_BYTES", 100_000)


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    """A real server that treats every connection alike."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await handler(reader, writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def is_silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def drips(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"content-length: 5000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def drips_headers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    while True:
        writer.write(b"x: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def has_no_end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n[")
    while True:
        writer.write(b"1," * 10_000)
        await writer.drain()


async def is_large(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"content-length: 200000\r\n\r\n" + b" " * 200_000)
    await writer.drain()


@pytest.mark.usefixtures("_hurried")
@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (is_silent, "did not answer GET /health completely"),
        (drips, "did not answer GET /health completely"),
        (drips_headers, "did not answer GET /health completely|connection broke"),
        (has_no_end, "larger than"),
        (is_large, "larger than"),
    ],
)
def test_server_that_does_not_finish_ends_in_one_sentence(handler: Handler, message: str) -> None:
    async def main() -> None:
        async with listening(handler) as address, open_runtime(address):
            pass

    started = time.monotonic()
    with pytest.raises(RuntimeFault, match=message) as caught:
        asyncio.run(main())
    assert time.monotonic() - started < 5
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.usefixtures("_hurried")
def test_a_long_text_to_tokenize_has_more_time() -> None:
    async def respond(_: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0.6)
        return httpx2.Response(200, json={"tokens": []})

    async def main(text: str) -> None:
        async with new_client("http://127.0.0.1:1", httpx2.MockTransport(respond)) as client:
            await post_json(client, "tokenize", {"content": text})

    asyncio.run(main("x" * 100_000))
    with pytest.raises(TransientFault, match="POST /tokenize"):
        asyncio.run(main("x"))


def events_without_end(_: int, lines: object) -> httpx2.Response:
    async def body() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 10_000

    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())


def pings_without_end(_: int, lines: object) -> httpx2.Response:
    async def body() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.02)
            yield b": ping\n\n"

    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body())


@pytest.mark.usefixtures("_hurried")
def test_answer_without_end_is_not_read_for_ever() -> None:
    with pytest.raises(RuntimeFault, match="larger than") as caught:
        complete(Server(answer=events_without_end), ask())
    assert not isinstance(caught.value, TransientFault)


@pytest.mark.usefixtures("_hurried")
def test_short_prompt_that_is_never_answered_may_be_asked_again() -> None:
    with pytest.raises(TransientFault, match="had not finished"):
        complete(Server(answer=pings_without_end), ask(prefix=(), suffix=(1, 2)))


def test_a_megabyte_echoed_with_a_long_prompt_is_no_fault() -> None:
    def echo(_: int, lines: list[dict[str, object]]) -> httpx2.Response:
        return httpx2.Response(
            200, json={**lines[0], **lines[1], "content": " Alice", "prompt": "x" * 2**20}
        )

    (reply,) = complete(Server(answer=echo), ask())
    assert reply.text == " Alice"


LOADING = httpx2.Response(503, json={"error": {"code": 503, "message": "Loading model"}})


def start(loads: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Recognise a server that first says so many times that it is loading; what was waited."""
    monkeypatch.setattr(detect, "LOADING_PAUSE", 0.01)
    monkeypatch.setattr(detect, "LOADING_SECONDS", 0.2)
    server, waited = Server(), list[float]()

    async def respond(request: httpx2.Request) -> httpx2.Response:
        return LOADING if len(waited) < loads else await server(request)

    async def main() -> None:
        async with new_client("http://127.0.0.1:1", httpx2.MockTransport(respond)) as client:
            await recognise(client, waiting=waited.append)

    asyncio.run(main())
    return waited


def test_a_loading_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = start(3, monkeypatch)
    assert len(waited) == 3
    assert waited == sorted(waited)


def test_a_server_that_loads_for_ever_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeFault, match="still loading its model after") as caught:
        start(10**6, monkeypatch)
    assert not isinstance(caught.value, TransientFault)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_done_is_no_passing_fault() -> None:
    async def main() -> None:
        respond = httpx2.MockTransport(lambda _: httpx2.Response(501, json={}))
        async with new_client("http://127.0.0.1:1", respond) as client:
            await get_json(client, "slots")

    with pytest.raises(RuntimeFault, match="HTTP 501") as caught:
        asyncio.run(main())
    assert not isinstance(caught.value, TransientFault)
