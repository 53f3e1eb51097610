"""Responses that are not what they should be, and a server that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.responses import HTMLResponse, Response

from kvphase.serve.refusal import ApiError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kvphase.serve.front import Front

__all__ = ["Outage", "Torn"]

PAGE = "<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"


class Outage:
    """Middleware: answers every path with 503 or with a web page while those faults are on."""

    def __init__(self, app: ASGIApp, front: Front) -> None:
        """Stand before ``app``, which speaks for ``front``."""
        self._app = app
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in the application's place, or let it answer."""
        desk, app = self._front.desk, self._app
        faults = desk.faults
        if scope["type"] == "http" and faults.active(desk.requests):
            if faults.loading:
                app = self._front.refusal(ApiError(503, "Loading model"))
            elif faults.html:
                app = HTMLResponse(PAGE)
        await app(scope, receive, send)


class Torn(Response):
    """Half of another response's first part, and then nothing.

    With ``reset`` the response is never completed, so that the server closes the connection in the
    middle of it. Without, it is a complete HTTP response whose body ends too early.
    """

    def __init__(self, whole: Response, *, reset: bool) -> None:
        """Tear ``whole``."""
        super().__init__()
        self._whole = whole
        self._reset = reset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the half."""
        waiting: list[Message] = []

        async def tear(message: Message) -> None:
            if message["type"] == "http.response.start":
                waiting.append(message)
            elif waiting:
                start, body = waiting.pop(), message["body"]
                if not self._reset:
                    del MutableHeaders(raw=start["headers"])["content-length"]
                await send(start)
                half = body[: len(body) // 2]
                await send({**message, "body": half, "more_body": self._reset})

        await self._whole(scope, receive, tear)
