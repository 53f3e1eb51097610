"""What every runtime behind HTTP needs: a client, JSON both ways, and failures in one sentence.

Failures that may pass (no connection, 5xx, a torn answer) are raised as `TransientFault`; the
runtime that knows what was being asked turns it into a `RuntimeFault` where asking again would
not be cheap. No message holds a host name or a key. Whatever a server sends, or fails to send,
its small answers end at a deadline and every answer at a size.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import math
import os
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import httpx2

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

KEY_VARIABLE = "KVPHASE_API_KEY"
HOST_KEYS = {
    "api.deepseek.com": "DEEPSEEK_API_KEY",
    "api.openai.com": "OPENAI_API_KEY",
    "openrouter.ai": "OPENROUTER_API_KEY",
    "api.together.xyz": "TOGETHER_API_KEY",
    "api.fireworks.ai": "FIREWORKS_API_KEY",
}
"""Providers' usual variables: read where `KEY_VARIABLE` is not set, sent to that host alone."""
CONNECT_SECONDS = 10.0
CALL_SECONDS = 15.0
"""A request that evaluates nothing is answered within this, from its first byte to its last."""
BYTES_PER_SECOND = 100_000
"""A long text to tokenize gets a second more for each of these."""
BODY_BYTES = 32 * 2**20
"""Longest answer that is read; a megabyte would be a long one."""
ANSWER_SECONDS = 300.0
"""Deadline of a question on a prefix that is cached, or of a short prompt."""
KEEP_SECONDS = 4.0
"""Idle connections are dropped before llama-server does it (after 5 s)."""
AT_ONCE = 8
"""Requests under way together when many small ones are needed."""
MESSAGE_CHARACTERS = 200


class Unreachable(TransientFault):
    """No connection came about, so whatever the server had cached may be gone."""

    untouched = True


class Loading(TransientFault):
    """The server is there and still loads its model."""


class Busy(TransientFault):
    """The server turned the request away before it worked on it; `wait` is how long it asks for."""

    untouched = True


class Refused(RuntimeFault):
    """The server will not do what was asked.

    Attributes:
        status: Of the answer.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status: int = status


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this very machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def shown(address: str) -> str:
    """``address`` as it may be shown: nothing of what may be a password or a key in it."""
    scheme, mark, rest = address.rpartition("//")
    return f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}"


def new_client(
    address: str, transport: httpx2.AsyncBaseTransport | None = None
) -> httpx2.AsyncClient:
    """A client for the server at ``address`` (scheme, host, port and perhaps a path).

    Raises:
        UsageError: the address is not one.
    """
    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise UsageError(message("runtime.address", address=shown(address))) from error
    if not url.host or not 0 < (url.port or 80) < 65536:
        raise UsageError(message("runtime.port", address=shown(address)))
    key = _key(url)
    # Reading all certificates takes longer than a question, and plain HTTP never looks at one.
    plain = url.scheme == "http"
    certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True
    return httpx2.AsyncClient(
        base_url=url,
        verify=certificates,
        transport=transport,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        # A kept connection may die just as it is used again, which would end a run if a prefill
        # was sent on it. Over plain HTTP a new one costs next to nothing, so none is kept.
        limits=httpx2.Limits(
            max_keepalive_connections=0 if plain else AT_ONCE, keepalive_expiry=KEEP_SECONDS
        ),
        trust_env=not is_loopback(url.host),  # a proxy has no business in front of this machine
    )


def _key(url: httpx2.URL) -> str | None:
    """The key for the server at ``url``: kvphase's own variable, or its provider's over TLS."""
    names = [KEY_VARIABLE]
    if url.scheme == "https" and url.host in HOST_KEYS:
        names.append(HOST_KEYS[url.host])
    name = next((name for name in names if os.environ.get(name)), None)
    if name is None:
        return None
    key = os.environ[name]
    if not (key.isascii() and key.isprintable()):
        raise UsageError(message("runtime.bad-key", variable=name))
    return key


async def get_json(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    """The JSON object at ``path``.

    Raises:
        TransientFault: no connection, 5xx, a torn answer, or none before the deadline.
        RuntimeFault: the request was refused, or the answer is no JSON object or has no end.
    """
    return _object(await _called(client, "GET", path))


async def get_objects(client: httpx2.AsyncClient, path: str) -> list[dict[str, Any]]:
    """The JSON objects in the array at ``path``; raises as `get_json` does."""
    value = _parsed(await _called(client, "GET", path))
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise RuntimeFault(message("runtime.other-json"))
    return value


async def post_json(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON object that ``path`` answers to ``body``; raises as `get_json` does."""
    return _object(await _called(client, "POST", path, json.dumps(body).encode()))


async def post_stream(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any], most: int
) -> AsyncGenerator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events; leaving early closes the connection.

    It waits as long as the server takes; who has a deadline puts one around it.

    Args:
        client: Of the server.
        path: What to post to.
        body: The request.
        most: Bytes after which the answer is given up.

    Raises:
        TransientFault: no connection, 5xx, or a torn answer.
        RuntimeFault: the request was refused, or the answer is not what was asked for.
    """
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    with _explained():
        async with client.stream("POST", path, json=body, timeout=timeout) as response:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                yield _object(_accepted(response, await _text(response, most)))
                return
            async for line in _lines(response, most):
                field, _, data = line.partition(":")
                if field in ("data", "error") and data.strip() not in ("", "[DONE]"):
                    yield _event(data)


async def _called(
    client: httpx2.AsyncClient, method: str, path: str, content: bytes | None = None
) -> str:
    """The text of an answer that takes no evaluation."""
    seconds = CALL_SECONDS + len(content or b"") / BYTES_PER_SECOND
    headers = {"content-type": "application/json"} if content else {}
    with _explained():
        try:
            async with (
                asyncio.timeout(seconds),
                client.stream(method, path, content=content, headers=headers) as response,
            ):
                return _accepted(response, await _text(response, BODY_BYTES))
        except TimeoutError as error:
            raise TransientFault(
                message("runtime.slow", call=f"{method} /{path}", seconds=round(seconds))
            ) from error


async def _text(response: httpx2.Response, most: int) -> str:
    """The whole body."""
    return b"".join([part async for part in _parts(response, most)]).decode(errors="replace")


async def _lines(response: httpx2.Response, most: int) -> AsyncIterator[str]:
    """The body line by line, as it arrives."""
    rest = b""
    async for part in _parts(response, most):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    yield rest.decode(errors="replace")


async def _parts(response: httpx2.Response, most: int) -> AsyncIterator[bytes]:
    """The body as it arrives, up to ``most`` bytes."""
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > most:
            raise RuntimeFault(message("runtime.large", megabytes=f"{most / 2**20:.0f}"))
        yield part


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn the client's errors into faults of one sentence."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise Unreachable(message("runtime.unreachable")) from error
    except httpx2.TimeoutException as error:
        raise TransientFault(message("runtime.silent")) from error
    except httpx2.HTTPError as error:
        raise TransientFault(message("runtime.broke")) from error


def said(fault: Exception) -> str:
    """What a fault says; as a message that can be translated, where it is one."""
    text = fault.args[0] if fault.args else ""
    return text if isinstance(text, str) else str(fault)


def _accepted(response: httpx2.Response, text: str) -> str:
    """The text of a response that is neither a refusal nor from somewhere else."""
    if response.is_error:
        raise _refusal(response.status_code, text, _wait(response.headers))
    if response.is_redirect:
        raise RuntimeFault(message("runtime.redirect"))
    if _is_html(text):
        raise RuntimeFault(message("runtime.html"))
    return text


def _event(data: str) -> dict[str, Any]:
    """The JSON object of one event; an error in the middle of a stream has no status line."""
    event = _object(data)
    error = event.get("error", event if "code" in event and "message" in event else None)
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        raise _refusal(code if isinstance(code, int) else 500, data)
    return event


def _object(text: str) -> dict[str, Any]:
    value = _parsed(text)
    if not isinstance(value, dict):
        raise RuntimeFault(message("runtime.other-json"))
    return value


def _parsed(text: str) -> Any:  # noqa: ANN401 - as read from JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip()[:1] in ("{", "["):
            raise TransientFault(message("runtime.torn")) from error
        raise RuntimeFault(message("runtime.not-json")) from error


def _wait(headers: httpx2.Headers) -> float | None:
    """Seconds that ``Retry-After`` asks for, as a number or as a date; None without it."""
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(said).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _refusal(status: int, text: str, wait: float | None = None) -> RuntimeFault:
    """The fault for an HTTP status of 400 or more, with the server's reason if it gave one."""
    reason = _reason(text)
    values = {"status": status, "reason": f": {reason}" if reason else ""}
    if status in (401, 403):
        return Refused(message("runtime.access", variable=KEY_VARIABLE, **values), status)
    if status == 503 and "loading" in reason.lower():
        return Loading(message("runtime.failed", **values))
    if status == 429 or (status == 503 and wait is not None):
        busy = Busy(message("runtime.busy", **values))
        busy.wait = wait
        return busy
    if status >= 500 and status != 501:  # 501: this server never does that
        return TransientFault(message("runtime.failed", **values))
    return Refused(message("runtime.refused", **values), status)


def _reason(text: str) -> str:
    """What the server said, on one line and without our key."""
    if _is_html(text):
        return "HTML"
    try:
        error = json.loads(text)["error"]
        words = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        words = "" if text.lstrip()[:1] in ("{", "[") else text
    for name in (KEY_VARIABLE, *HOST_KEYS.values()):
        if key := os.environ.get(name):
            words = words.replace(key, "***")
    return " ".join(words.split())[:MESSAGE_CHARACTERS]


def _is_html(text: str) -> bool:
    return text.lstrip()[:1] == "<"
