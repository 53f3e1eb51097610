"""What every runtime behind HTTP needs: a client, JSON both ways, and failures in one sentence.

Failures that may pass (no connection, 5xx, a torn answer) are raised as `TransientFault`; the
runtime that knows what was being asked turns it into a `RuntimeFault` where asking again would
not be cheap. No message holds a host name or a key.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import ssl
from typing import TYPE_CHECKING, Any

import httpx2

from kvphase.errors import RuntimeFault, TransientFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

KEY_VARIABLE = "KVPHASE_API_KEY"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 300.0
"""Longest silence of a server that has no prompt to prefill."""
KEEP_SECONDS = 4.0
"""Idle connections are dropped before llama-server does it (after 5 s)."""
AT_ONCE = 8
"""Requests under way together when many small ones are needed."""
MESSAGE_CHARACTERS = 200


class Unreachable(TransientFault):
    """No connection came about, so whatever the server had cached may be gone."""


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
        raise UsageError(f"{shown(address)!r} is not an address of a host and a port") from error
    if not url.host or not 0 < (url.port or 80) < 65536:
        raise UsageError(f"{shown(address)!r} is not an address with a host and a port below 65536")
    key = os.environ.get(KEY_VARIABLE)
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


async def get_json(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    """The JSON object at ``path``.

    Raises:
        TransientFault: no connection, 5xx, or a torn answer.
        RuntimeFault: the request was refused, or the answer is no JSON object.
    """
    with _explained():
        response = await client.get(path)
    return _object(response)


async def post_json(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON object that ``path`` answers to ``body``; raises as `get_json` does."""
    with _explained():
        response = await client.post(path, json=body)
    return _object(response)


async def post_stream(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any], silence: float | None
) -> AsyncGenerator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events; leaving early closes the connection.

    Args:
        client: Of the server.
        path: What to post to.
        body: The request.
        silence: Seconds without a byte after which to give up; None waits for ever.

    Raises:
        TransientFault: no connection, 5xx, or a torn answer.
        RuntimeFault: the request was refused, or the answer is not what was asked for.
    """
    timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=silence)
    with _explained():
        async with client.stream("POST", path, json=body, timeout=timeout) as response:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                await response.aread()
                yield _object(response)
                return
            async for line in response.aiter_lines():
                field, _, data = line.partition(":")
                if field in ("data", "error") and data.strip() not in ("", "[DONE]"):
                    yield _event(data)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turn the client's errors into faults of one sentence."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise Unreachable(
            "the server cannot be reached: nothing answers at that address and port"
        ) from error
    except httpx2.TimeoutException as error:
        raise TransientFault("the server fell silent before its answer was complete") from error
    except httpx2.HTTPError as error:
        raise TransientFault("the connection broke before the server's answer was complete") from (
            error
        )


def _object(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object in a response that was read."""
    text = response.text
    if response.is_error:
        raise _refusal(response.status_code, text)
    if response.is_redirect:
        raise RuntimeFault("the server redirects elsewhere; give the address it redirects to")
    if _is_html(text):
        raise RuntimeFault("the server answers HTML: a web page, not a model's API")
    return _parsed(text)


def _event(data: str) -> dict[str, Any]:
    """The JSON object of one event; an error in the middle of a stream has no status line."""
    event = _parsed(data)
    error = event.get("error", event if "code" in event and "message" in event else None)
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        raise _refusal(code if isinstance(code, int) else 500, data)
    return event


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip()[:1] in ("{", "["):
            raise TransientFault("the server's answer is torn in the middle of its JSON") from error
        raise RuntimeFault("the server's answer is not JSON") from error
    if not isinstance(value, dict):
        raise RuntimeFault("the server's answer is JSON of another kind than a model server's")
    return value


def _refusal(status: int, text: str) -> RuntimeFault:
    """The fault for an HTTP status of 400 or more, with the server's reason if it gave one."""
    said = _reason(text)
    reason = f": {said}" if said else ""
    if status in (401, 403):
        return RuntimeFault(
            f"the server refuses access (HTTP {status}){reason}; "
            f"put its key into the environment variable {KEY_VARIABLE}"
        )
    if status >= 500:
        return TransientFault(f"the server failed (HTTP {status}){reason}")
    return RuntimeFault(f"the server refused the request (HTTP {status}){reason}")


def _reason(text: str) -> str:
    """What the server said, on one line and without our key."""
    if _is_html(text):
        return "it answers HTML"
    try:
        error = json.loads(text)["error"]
        message = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        message = "" if text.lstrip()[:1] in ("{", "[") else text
    key = os.environ.get(KEY_VARIABLE)
    if key:
        message = message.replace(key, "***")
    return " ".join(message.split())[:MESSAGE_CHARACTERS]


def _is_html(text: str) -> bool:
    return text.lstrip()[:1] == "<"
