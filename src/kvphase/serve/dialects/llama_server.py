"""llama.cpp's ``llama-server`` (build of October 2026): every path that a toy can answer."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.serve.dialects import llama_wire as wire
from kvphase.serve.front import Front, event, is_shown, read, token
from kvphase.serve.refusal import ApiError
from kvphase.serve.settings import Settings, read_prompts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from kvphase.serve.front import Handler
    from kvphase.serve.job import Job

__all__ = ["LlamaServer"]

NO_TEMPLATE = "This model has no chat template; toy models answer plain prompts"


class LlamaServer(Front):
    """Paths under each of their names; token ids in, scores and cache counts out."""

    headers: ClassVar[dict[str, str]] = wire.HEADERS

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        return {
            "/health": self._health,
            "/v1/health": self._health,
            "/props": self._props,
            "/slots": self._slots,
            "/models": self._models,
            "/v1/models": self._models,
        }

    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""
        return {
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
            "/apply-template": self._chat,
            "/chat/completions": self._chat,
            "/v1/chat/completions": self._chat,
            "/completion": self._completion,
            "/completions": self._completion,
            "/v1/completions": self._openai_completion,
        }

    async def _health(self, _: Request) -> Response:
        return self.reply({"status": "ok"})

    async def _props(self, _: Request) -> Response:
        return self.reply(wire.props(self.desk))

    async def _slots(self, _: Request) -> Response:
        return self.reply(wire.slots(self.desk))

    async def _models(self, _: Request) -> Response:
        return self.reply(wire.model_list(self.engine, self.created))

    async def _tokenize(self, request: Request) -> Response:
        """``content`` is text, or a list of texts and ids."""
        body = await read(request)
        content, words = body.get("content", ""), self.engine.words
        special = bool(body.get("parse_special", True))
        pieces = [(words.bos, words.tokens[words.bos])] if body.get("add_special") else []
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                pieces += words.pieces(part, special=special)
            else:
                pieces.append((token(part), words.decode([token(part)])))
        if body.get("with_pieces"):
            return self.reply({"tokens": [{"id": n, "piece": text} for n, text in pieces]})
        return self.reply({"tokens": [n for n, _ in pieces]})

    async def _detokenize(self, request: Request) -> Response:
        tokens = (await read(request)).get("tokens", [])
        if not isinstance(tokens, list):
            raise ApiError(400, "'tokens' must be an array")
        return self.reply({"content": self.engine.words.decode([token(n) for n in tokens])})

    async def _chat(self, request: Request) -> Response:
        """Refused: toys have no template."""
        if "messages" not in await read(request):
            raise ApiError(400, "'messages' is required")
        raise ApiError(404, NO_TEMPLATE)

    async def _completion(self, request: Request) -> Response:
        jobs = await self._read_jobs(request)
        if jobs[0].settings.stream:
            return self.stream(jobs, self._plain_events)
        return await self.whole(jobs, request, lambda job: wire.final(job, self.engine))

    async def _openai_completion(self, request: Request) -> Response:
        jobs = await self._read_jobs(request)
        if len(jobs) > 1:
            raise ApiError(501, "This server answers one prompt a request at this path")
        identity = wire.identity()
        if not jobs[0].settings.stream:
            return await self.whole(
                jobs, request, lambda job: wire.openai(job, self.engine, identity)
            )
        return self.stream(
            jobs,
            lambda job: self.events(
                job, lambda job, piece: wire.openai(job, self.engine, identity, piece)
            ),
        )

    async def _read_jobs(self, request: Request) -> list[Job]:
        body: dict[str, Any] = await read(request)
        if "prompt" not in body:
            raise ApiError(400, "key 'prompt' not found")
        settings = Settings.read(body)
        return self.jobs(read_prompts(self.engine, body["prompt"]), settings)

    async def _plain_events(self, job: Job) -> AsyncIterator[bytes]:
        async with aclosing(self.desk.work(job)) as news:
            async for piece in news:
                if is_shown(job, piece):
                    yield event(wire.chunk(job, piece))
        yield event(wire.final(job, self.engine))
