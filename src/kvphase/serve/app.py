"""The HTTP application: one server's dialect over one toy model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from kvphase.errors import UsageError
from kvphase.runtimes.toy import ToyEngine
from kvphase.serve.broken import Outage
from kvphase.serve.dialects import DIALECTS
from kvphase.serve.faults import Faults
from kvphase.serve.job import Desk
from kvphase.serve.refusal import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kvphase.serve.front import Front

__all__ = ["build_app", "create_app"]


def create_app(
    name: str,
    faults: Faults | None = None,
    throttle: float | None = None,
    dialect: str = "llama-server",
) -> Starlette:
    """The application that serves ``toy:name``; ``app.state.desk`` is its state.

    Args:
        name: A shipped toy model, with or without ``toy:``.
        faults: What goes wrong; nothing by default.
        throttle: Prompt tokens evaluated per second at most; None as fast as it goes.
        dialect: Which server's API is spoken: one of `DIALECTS`.

    Raises:
        UsageError: there is no such toy model or dialect.
    """
    return build_app(ToyEngine.load(name), faults, throttle, dialect)


def build_app(
    engine: ToyEngine,
    faults: Faults | None = None,
    throttle: float | None = None,
    dialect: str = "llama-server",
) -> Starlette:
    """The application over any engine; see `create_app`."""
    if dialect not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise UsageError(f"there is no dialect called {dialect!r}; there are: {known}")
    desk = Desk(engine, faults or Faults(), throttle)
    front = DIALECTS[dialect](desk)
    app = Starlette(
        routes=front.routes(),
        middleware=[Middleware(Outage, front=front)],
        exception_handlers=_handlers(front),  # type: ignore[arg-type]  # each handles its own kind
    )
    app.state.desk = desk
    return app


def _handlers(front: Front) -> dict[object, object]:
    """Every failure as this server words it."""

    async def refuse(_: Request, error: ApiError) -> Response:
        response = front.refusal(error)
        response.headers.update(error.headers)
        return response

    async def refuse_usage(_: Request, error: UsageError) -> Response:
        return front.refusal(ApiError(400, str(error)))

    async def not_found(_: Request, error: HTTPException) -> Response:
        """A path or method that the real server does not have either."""
        return front.refusal(ApiError(404, "File Not Found"))

    async def fail(_: Request, error: Exception) -> Response:
        """A fault of ours: said to the client, since the server itself keeps quiet."""
        return front.refusal(ApiError(500, f"{type(error).__name__}: {error}"))

    return {ApiError: refuse, UsageError: refuse_usage, HTTPException: not_found, Exception: fail}
