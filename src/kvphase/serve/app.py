"""The HTTP application: llama-server's paths over one toy model."""

from __future__ import annotations

import json
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kvphase.errors import UsageError
from kvphase.runtimes.toy import ToyEngine
from kvphase.serve import wire
from kvphase.serve.broken import Outage, Torn
from kvphase.serve.faults import Faults
from kvphase.serve.job import Desk, Job, Piece
from kvphase.serve.refusal import ApiError
from kvphase.serve.settings import Settings, read_prompts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

__all__ = ["build_app", "create_app"]

NO_TEMPLATE = "This model has no chat template; toy models answer plain prompts"


def create_app(name: str, faults: Faults | None = None, throttle: float | None = None) -> Starlette:
    """The application that serves ``toy:name``; ``app.state.desk`` is its state.

    Args:
        name: A shipped toy model, with or without ``toy:``.
        faults: What goes wrong; nothing by default.
        throttle: Prompt tokens evaluated per second at most; None as fast as it goes.

    Raises:
        UsageError: there is no such toy model.
    """
    return build_app(ToyEngine.load(name), faults, throttle)


def build_app(
    engine: ToyEngine, faults: Faults | None = None, throttle: float | None = None
) -> Starlette:
    """The application over any engine; see `create_app`."""
    desk = Desk(engine, faults or Faults(), throttle)
    handlers = {
        ApiError: _refuse,
        UsageError: _refuse_usage,
        HTTPException: _not_found,
        Exception: _fail,
    }
    app = Starlette(
        routes=_routes(Api(desk)),
        middleware=[Middleware(Outage, desk=desk)],
        exception_handlers=handlers,  # type: ignore[arg-type]  # each handles its own kind
    )
    app.state.desk = desk
    return app


def _routes(api: Api) -> list[Route]:
    """Every path of llama-server that a toy can answer, under each of its names."""
    get = {"/health": api.health, "/v1/health": api.health, "/props": api.props}
    get |= {"/slots": api.slots, "/models": api.models, "/v1/models": api.models}
    post = {
        "/tokenize": api.tokenize,
        "/detokenize": api.detokenize,
        "/apply-template": api.chat,
        "/chat/completions": api.chat,
        "/v1/chat/completions": api.chat,
        "/completion": api.completion,
        "/completions": api.completion,
        "/v1/completions": api.openai_completion,
    }
    routes = [Route(path, handler, methods=["GET"]) for path, handler in get.items()]
    return routes + [Route(path, handler, methods=["POST"]) for path, handler in post.items()]


class Api:
    """The handlers."""

    def __init__(self, desk: Desk) -> None:
        """Answer for ``desk``."""
        self._desk = desk
        self._engine = desk.engine
        self._created = int(time.time())

    async def health(self, _: Request) -> Response:
        """``GET /health``."""
        return wire.reply({"status": "ok"})

    async def props(self, _: Request) -> Response:
        """``GET /props``."""
        return wire.reply(wire.props(self._desk))

    async def slots(self, _: Request) -> Response:
        """``GET /slots``."""
        return wire.reply(wire.slots(self._desk))

    async def models(self, _: Request) -> Response:
        """``GET /v1/models``."""
        return wire.reply(wire.model_list(self._engine, self._created))

    async def tokenize(self, request: Request) -> Response:
        """``POST /tokenize``: ``content`` is text, or a list of texts and ids."""
        body = await _read(request)
        content, words = body.get("content", ""), self._engine.words
        special = bool(body.get("parse_special", True))
        pieces = [(words.bos, words.tokens[words.bos])] if body.get("add_special") else []
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                pieces += words.pieces(part, special=special)
            else:
                pieces.append((_token(part), words.decode([_token(part)])))
        if body.get("with_pieces"):
            return wire.reply({"tokens": [{"id": n, "piece": text} for n, text in pieces]})
        return wire.reply({"tokens": [n for n, _ in pieces]})

    async def detokenize(self, request: Request) -> Response:
        """``POST /detokenize``."""
        tokens = (await _read(request)).get("tokens", [])
        if not isinstance(tokens, list):
            raise ApiError(400, "'tokens' must be an array")
        return wire.reply({"content": self._engine.words.decode([_token(n) for n in tokens])})

    async def chat(self, request: Request) -> Response:
        """``POST /apply-template`` and chat completions: refused, toys have no template."""
        if "messages" not in await _read(request):
            raise ApiError(400, "'messages' is required")
        raise ApiError(404, NO_TEMPLATE)

    async def completion(self, request: Request) -> Response:
        """``POST /completion``."""
        jobs = await self._jobs(request)
        number, faults = jobs[0].request, self._desk.faults
        if faults.strikes("error", number):
            raise ApiError(500, "This failure was asked for: the fault 5xx")
        if jobs[0].settings.stream:
            response: Response = _Events(self._stream(jobs, self._plain_events))
        else:
            for job in jobs:
                await self._finish(job, request)
            answers = [wire.final(job, self._engine) for job in jobs]
            response = wire.reply(answers if len(jobs) > 1 else answers[0])
        return self._torn(response, number)

    async def openai_completion(self, request: Request) -> Response:
        """``POST /v1/completions``."""
        jobs = await self._jobs(request)
        if len(jobs) > 1:
            raise ApiError(501, "This server answers one prompt a request at this path")
        job = jobs[0]
        if self._desk.faults.strikes("error", job.request):
            raise ApiError(500, "This failure was asked for: the fault 5xx")
        if job.settings.stream:
            response: Response = _Events(self._stream(jobs, self._openai_events))
        else:
            await self._finish(job, request)
            response = wire.reply(wire.openai(job, self._engine, wire.identity()))
        return self._torn(response, job.request)

    async def _jobs(self, request: Request) -> list[Job]:
        """The jobs of one request, one for each of its prompts."""
        body = await _read(request)
        number = self._desk.requests
        self._desk.requests += 1  # only now: "after" must not strike while this one is read
        if "prompt" not in body:
            raise ApiError(400, "key 'prompt' not found")
        settings = Settings.read(body)
        prompts = read_prompts(self._engine, body["prompt"])
        prompts = [self._desk.faults.shorten(prompt, number) for prompt in prompts]
        return [Job(prompt, settings, number, n) for n, prompt in enumerate(prompts)]

    def _torn(self, response: Response, number: int) -> Response:
        """The response, broken where a fault strikes."""
        for fault in ("reset", "half"):
            if self._desk.faults.strikes(fault, number):
                return Torn(response, reset=fault == "reset")
        return response

    async def _finish(self, job: Job, request: Request) -> None:
        """Do the whole job, unless the client leaves: then stop, as llama-server does."""
        async with aclosing(self._desk.work(job)) as news:
            async for _ in news:
                if await request.is_disconnected():
                    return

    async def _stream(
        self, jobs: list[Job], events: Callable[[Job], AsyncIterator[bytes]]
    ) -> AsyncGenerator[bytes]:
        """The events of all jobs, one job after another."""
        for job in jobs:
            async for one in events(job):
                yield one

    async def _plain_events(self, job: Job) -> AsyncIterator[bytes]:
        async with aclosing(self._desk.work(job)) as news:
            async for piece in news:
                if _is_shown(job, piece):
                    yield wire.event(wire.chunk(job, piece))
        yield wire.event(wire.final(job, self._engine))

    async def _openai_events(self, job: Job) -> AsyncIterator[bytes]:
        identity = wire.identity()
        async with aclosing(self._desk.work(job)) as news:
            async for piece in news:
                if piece.processed is None:
                    yield wire.event(wire.openai(job, self._engine, identity, piece))
        yield wire.event(wire.openai(job, self._engine, identity))
        yield b"data: [DONE]\n\n"


class _Events(StreamingResponse):
    """Server-sent events; a client that leaves stops the work at once."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        headers = wire.HEADERS | {"content-type": "text/event-stream", "x-accel-buffering": "no"}
        super().__init__(events, headers=headers)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


def _is_shown(job: Job, piece: Piece) -> bool:
    return piece.processed is None or job.settings.return_progress


def _token(value: object) -> int:
    """``value`` if it is a token id."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ApiError(400, "tokens must be integers")
    return value


def _no_number(text: str) -> None:
    """Refuse what Python reads as a number and JSON does not have."""
    raise ValueError(f"{text} is not JSON")


async def _read(request: Request) -> dict[str, Any]:
    """The request's JSON object."""
    try:
        body: Any = json.loads(await request.body(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"parse error: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "the request's body must be a JSON object")
    return body


async def _refuse(_: Request, error: ApiError) -> Response:
    return wire.error(error)


async def _refuse_usage(_: Request, error: UsageError) -> Response:
    return wire.error(ApiError(400, str(error)))


async def _not_found(_: Request, error: HTTPException) -> Response:
    """A path or method that llama-server does not have either."""
    return wire.error(ApiError(404, "File Not Found"))


async def _fail(_: Request, error: Exception) -> Response:
    """A fault of ours: said to the client, since the server itself keeps quiet."""
    return wire.error(ApiError(500, f"{type(error).__name__}: {error}"))
