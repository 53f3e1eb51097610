"""What the served dialects have in common: bodies read, jobs done, answers torn where wanted."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kvphase.serve.broken import Torn
from kvphase.serve.job import Job
from kvphase.serve.refusal import ApiError
from kvphase.serve.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Mapping,
        Sequence,
    )

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from kvphase.runtimes.toy import ToyEngine
    from kvphase.serve.job import Desk, Piece
    from kvphase.serve.settings import Settings

    Handler = Callable[[Request], Awaitable[Response]]

__all__ = ["Front", "Json", "dump", "event", "is_shown", "read", "token"]

Json = dict[str, Any]
RETRY_SECONDS = 1
"""What a request that is turned away is told to wait."""


class Front(ABC):
    """One server's HTTP API over one desk."""

    headers: ClassVar[dict[str, str]] = {}
    """Sent with every response."""
    event_type: ClassVar[str] = "text/event-stream"
    """Media type of a streamed answer."""

    def __init__(self, desk: Desk) -> None:
        """Answer for ``desk``."""
        self.desk: Desk = desk
        self.created: int = int(time.time())
        self.vocabulary: Vocabulary = Vocabulary(desk.engine.words)

    @property
    def engine(self) -> ToyEngine:
        """The model that is loaded now."""
        return self.desk.engine

    @abstractmethod
    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""

    @abstractmethod
    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""

    def routes(self) -> list[Route]:
        """Both, as Starlette wants them."""
        routes = [Route(path, handler, methods=["GET"]) for path, handler in self.pages().items()]
        return routes + [Route(path, call, methods=["POST"]) for path, call in self.calls().items()]

    def reply(self, content: object, status: int = 200) -> Response:
        """A JSON response with this server's headers."""
        return Response(dump(content), status, self.headers, "application/json; charset=utf-8")

    def refusal(self, error: ApiError) -> Response:
        """The response to a request that is refused, in this server's form."""
        return self.reply(error.body, error.code)

    def jobs(
        self, prompts: Sequence[tuple[int, ...]], settings: Settings, key: str = ""
    ) -> list[Job]:
        """The jobs of one request, one for each of its prompts.

        Args:
            prompts: Token ids of each.
            settings: What was asked for.
            key: Of the cache, where the API knows such.

        Raises:
            ApiError: a fault that is switched on strikes.
        """
        desk = self.desk
        number, desk.requests = desk.requests, desk.requests + 1
        if desk.faults.strikes("limit", number):
            wait = {"retry-after": str(RETRY_SECONDS)}
            raise ApiError(429, "This failure was asked for: the fault 429", headers=wait)
        if desk.faults.strikes("error", number):
            raise ApiError(500, "This failure was asked for: the fault 5xx")
        cut = [desk.faults.shorten(prompt, number) for prompt in prompts]
        return [Job(prompt, settings, number, n, key) for n, prompt in enumerate(cut)]

    async def whole(
        self, jobs: list[Job], request: Request, form: Callable[[Job], Json]
    ) -> Response:
        """All answers in one body; several as a list."""
        for job in jobs:
            await self._finish(job, request)
        answers = [form(job) for job in jobs]
        return self.torn(self.reply(answers if len(jobs) > 1 else answers[0]), jobs[0].request)

    def stream(self, jobs: list[Job], events: Callable[[Job], AsyncIterator[bytes]]) -> Response:
        """The events of all jobs, one job after another."""
        headers = {**self.headers, "content-type": self.event_type, "x-accel-buffering": "no"}
        return self.torn(_Events(_chained(jobs, events), headers), jobs[0].request)

    async def events(
        self, job: Job, form: Callable[[Job, Piece | None], Mapping[str, Any]]
    ) -> AsyncIterator[bytes]:
        """An event for each piece of the answer, one with its end, and the mark of the end."""
        async with aclosing(self.desk.work(job)) as news:
            async for piece in news:
                if piece.processed is None:
                    yield event(form(job, piece))
        yield event(form(job, None))
        yield b"data: [DONE]\n\n"

    def torn(self, response: Response, number: int) -> Response:
        """The response, broken where a fault strikes."""
        if self.desk.restarts(number):
            return Torn(response, reset=True)
        for fault in ("reset", "half"):
            if self.desk.faults.strikes(fault, number):
                return Torn(response, reset=fault == "reset")
        return response

    async def _finish(self, job: Job, request: Request) -> None:
        """Do the whole job, unless the client leaves: then stop, as real servers do."""
        async with aclosing(self.desk.work(job)) as news:
            async for _ in news:
                if await request.is_disconnected():
                    return


class _Events(StreamingResponse):
    """Server-sent events; a client that leaves stops the work at once."""

    def __init__(self, events: AsyncGenerator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(events, headers=headers)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


async def _chained(
    jobs: list[Job], events: Callable[[Job], AsyncIterator[bytes]]
) -> AsyncGenerator[bytes]:
    for job in jobs:
        async for one in events(job):
            yield one


def is_shown(job: Job, piece: Piece) -> bool:
    """Whether a piece of news is sent on: progress of a prefill only where it was asked for."""
    return piece.processed is None or job.settings.return_progress


def dump(content: object) -> bytes:
    """Compact JSON."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")  # half a surrogate pair, echoed from the request


def event(content: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(content) + b"\n\n"


def token(value: object) -> int:
    """``value`` if it is a token id.

    Raises:
        ApiError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ApiError(400, "tokens must be integers")
    return value


async def read(request: Request) -> Json:
    """The request's JSON object.

    Raises:
        ApiError: the body is something else.
    """
    try:
        body: Any = json.loads(await request.body(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"parse error: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "the request's body must be a JSON object")
    return body


def _no_number(text: str) -> None:
    """Refuse what Python reads as a number and JSON does not have."""
    raise ValueError(f"{text} is not JSON")
