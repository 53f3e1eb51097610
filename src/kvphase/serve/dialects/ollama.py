"""Ollama 0.20: ``/api/generate``, the model's own vocabulary, prompts that are cut without a word.

A prompt longer than the context keeps its BOS and its last half a context, and the answer says so
only by its count of prompt tokens, in which hits and misses are added up.
"""

from __future__ import annotations

import datetime
from contextlib import aclosing
from typing import TYPE_CHECKING, ClassVar

from starlette.responses import PlainTextResponse, Response

from kvphase.serve.dialects.chat import content_entry
from kvphase.serve.front import Front, Json, dump, read
from kvphase.serve.refusal import ApiError
from kvphase.serve.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from kvphase.serve.front import Handler
    from kvphase.serve.job import Job, Piece

__all__ = ["Ollama"]

VERSION = "0.20.0"
MOST_SCORES = 20
NANO = 1_000_000_000
OPTIONS = {"num_predict": "n_predict"} | {
    name: name for name in ("temperature", "top_k", "top_p", "min_p", "seed", "stop")
}


class Ollama(Front):
    """One loaded model; naming another is a 404."""

    event_type: ClassVar[str] = "application/x-ndjson"

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        return {
            "/": self._hello,
            "/api/version": self._version,
            "/api/tags": self._tags,
            "/api/ps": self._loaded,
            "/v1/models": self._models,
        }

    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""
        return {"/api/show": self._show, "/api/generate": self._generate}

    def refusal(self, error: ApiError) -> Response:
        """Ollama's form: the message and nothing else."""
        return self.reply({"error": error.message}, error.code)

    async def _hello(self, _: Request) -> Response:
        return PlainTextResponse("Ollama is running")

    async def _version(self, _: Request) -> Response:
        return self.reply({"version": VERSION})

    async def _tags(self, _: Request) -> Response:
        return self.reply({"models": [self._card()]})

    async def _loaded(self, _: Request) -> Response:
        state = {
            "expires_at": _now(),
            "size_vram": 0,
            "context_length": self.engine.context_tokens,
        }
        return self.reply({"models": [self._card() | state]})

    async def _models(self, _: Request) -> Response:
        card = {"id": self.engine.name, "object": "model", "owned_by": "library"}
        return self.reply({"object": "list", "data": [card | {"created": self.created}]})

    def _card(self) -> Json:
        name = self.engine.name
        return {
            "name": name,
            "model": name,
            "modified_at": _now(),
            "size": self.engine.file_bytes,
            "digest": "",
            "details": self._details(),
        }

    def _details(self) -> Json:
        parameters = f"{self.engine.parameters}"
        return {
            "format": "gguf",
            "family": "toy",
            "parameter_size": parameters,
            "quantization_level": "F16",
        }

    async def _show(self, request: Request) -> Response:
        body = await read(request)
        self._check_model(body)
        facts: Json = {
            "general.architecture": "toy",
            "general.parameter_count": self.engine.parameters,
            "toy.context_length": self.engine.context_tokens,
        }
        told = self.vocabulary.metadata()
        if not body.get("verbose"):
            told |= {name: None for name, value in told.items() if isinstance(value, list)}
        return self.reply(
            {
                "parameters": "",
                "template": "{{ .Prompt }}",
                "details": self._details(),
                "model_info": facts | told,
                "capabilities": ["completion"],
            }
        )

    def _check_model(self, body: Json) -> None:
        if body.get("model") != self.engine.name:
            raise ApiError(404, f"model {body.get('model')!r} not found")

    async def _generate(self, request: Request) -> Response:
        body = await read(request)
        self._check_model(body)
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise ApiError(400, "'prompt' must be a string")
        words = self.vocabulary
        ids = (words.bos, *words.encode(prompt, special=True))
        limit = self.engine.context_tokens
        if len(ids) > limit:
            ids = (words.bos, *ids[len(ids) - limit // 2 + 1 :])
        settings = self._settings(body)
        jobs = self.jobs([ids], settings)
        if settings.stream:
            return self.stream(jobs, self._lines)
        return await self.whole(jobs, request, lambda job: self._answer(job))

    def _settings(self, body: Json) -> Settings:
        given = body.get("options") or {}
        if not isinstance(given, dict):
            raise ApiError(400, "'options' must be an object")
        named = {own: given[name] for name, own in OPTIONS.items() if given.get(name) is not None}
        count = (body.get("top_logprobs") or 1) if body.get("logprobs") else 0
        if not isinstance(count, int) or not 0 <= count <= MOST_SCORES:
            raise ApiError(400, f"top_logprobs must be between 0 and {MOST_SCORES}")
        return Settings.read({"stream": body.get("stream", True), "n_probs": count, **named})

    async def _lines(self, job: Job) -> AsyncIterator[bytes]:
        async with aclosing(self.desk.work(job)) as news:
            async for piece in news:
                if piece.processed is None:
                    yield dump(self._answer(job, piece)) + b"\n"
        yield dump(self._answer(job)) + b"\n"

    def _answer(self, job: Job, piece: Piece | None = None) -> Json:
        """The answer, or with ``piece`` one line of its stream."""
        streamed = job.settings.stream
        places = piece.places if piece else range(0 if streamed else len(job.tokens))
        content: Json = {
            "model": self.engine.name,
            "created_at": _now(),
            "response": piece.text if piece else "" if streamed else job.text,
            "done": piece is None,
        }
        if job.settings.n_probs and places:
            content["logprobs"] = [content_entry(job.entries[place]) for place in places]
        if piece:
            return content
        seconds = job.prompt_seconds + job.predicted_seconds
        return content | {
            "done_reason": "length" if job.stop_type == "limit" else "stop",
            "total_duration": int(seconds * NANO),
            "load_duration": 0,
            "prompt_eval_count": len(job.prompt),
            "prompt_eval_duration": int(job.prompt_seconds * NANO),
            "eval_count": len(job.tokens),
            "eval_duration": int(job.predicted_seconds * NANO),
        }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()
