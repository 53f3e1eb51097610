"""OpenAI's completions and models (API reference of 2026), and nothing beyond them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.serve.front import Front, Json, read
from kvphase.serve.refusal import ApiError
from kvphase.serve.settings import Settings, read_prompts

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kvphase.serve.front import Handler
    from kvphase.serve.job import Job, Piece

__all__ = ["OpenAI", "ending", "usage"]


class OpenAI(Front):
    """Completions of text or token ids, log-probabilities as mappings from text."""

    owner: ClassVar[str] = "kvphase"
    """What the list of models calls the owner."""
    most_scores: ClassVar[int] = 5
    takes_ids: ClassVar[bool] = True

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        return {"/v1/models": self._models}

    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""
        return {"/v1/completions": self._completions}

    def card(self) -> Json:
        """The model's entry in the list."""
        return {
            "id": self.engine.name,
            "object": "model",
            "created": self.created,
            "owned_by": self.owner,
        }

    async def _models(self, _: Request) -> Response:
        return self.reply({"object": "list", "data": [self.card()]})

    async def _completions(self, request: Request) -> Response:
        body = await read(request)
        self.check_model(body)
        if "prompt" not in body:
            raise ApiError(400, "'prompt' is required")
        settings = self.settings(body)
        prompts = read_prompts(self.engine, self.prompt(body), self.vocabulary)
        if len(prompts) > 1:
            raise ApiError(501, "This server answers one prompt a request")
        jobs = self.jobs(prompts, settings, self.key(body))
        identity = f"cmpl-{secrets.token_hex(12)}"

        def form(job: Job, piece: Piece | None = None) -> Json:
            return self.completion(job, body, identity, piece)

        if settings.stream:
            return self.stream(jobs, lambda job: self.events(job, form))
        return await self.whole(jobs, request, form)

    def check_model(self, body: Json) -> None:
        """Refuse a model that is not there.

        Raises:
            ApiError: no name, or another than the one in the list.
        """
        if "model" not in body:
            raise ApiError(400, "'model' is required")
        if body["model"] != self.engine.name:
            raise ApiError(404, f"The model {body['model']!r} does not exist")

    def key(self, body: Json) -> str:
        """Under which key the cache is looked up; this API knows none."""
        del body
        return ""

    def prompt(self, body: Json) -> Any:  # noqa: ANN401 - as read from JSON
        """What a request's prompt is.

        Raises:
            ApiError: token ids, where texts only are taken.
        """
        if not self.takes_ids and not isinstance(body["prompt"], str):
            raise ApiError(400, "'prompt' must be a string")
        return body["prompt"]

    def settings(self, body: Json) -> Settings:
        """A completion's settings from this API's fields.

        Raises:
            ApiError: a field has the wrong type or value.
        """
        count = self.scores(body)
        known = {"n_predict": 16, "temperature": 1.0, "top_k": 0, "min_p": 0.0, "top_p": 1.0}
        named = {
            name: body[field]
            for field, name in (
                ("max_tokens", "n_predict"),
                ("temperature", "temperature"),
                ("top_p", "top_p"),
                ("top_k", "top_k"),
                ("min_p", "min_p"),
                ("seed", "seed"),
                ("stop", "stop"),
                ("stream", "stream"),
            )
            if body.get(field) is not None
        }
        return Settings.read({**known, **named, "n_probs": count})

    def scores(self, body: Json) -> int:
        """How many scores are wanted for each token.

        Raises:
            ApiError: more than there are.
        """
        count = body.get("logprobs") or 0
        if not isinstance(count, int) or count is True or not 0 <= count <= self.most_scores:
            raise ApiError(400, f"'logprobs' must be an integer up to {self.most_scores}")
        return count

    def completion(self, job: Job, body: Json, identity: str, piece: Piece | None = None) -> Json:
        """An answer, or with ``piece`` one event of its stream."""
        del body
        streamed = job.settings.stream
        places = piece.places if piece else range(0 if streamed else len(job.tokens))
        choice = {
            "index": 0,
            "text": piece.text if piece else "" if streamed else job.text,
            "logprobs": self.logprobs(job, places),
            "finish_reason": None if piece else ending(job),
        }
        content = {
            "id": identity,
            "object": "text_completion",
            "created": self.created,
            "model": self.engine.name,
            "choices": [choice],
        }
        return content if piece else content | {"usage": self.usage(job)}

    def logprobs(self, job: Job, places: range) -> Json | None:
        """Scores of the answer tokens at ``places``, where any were asked for."""
        if not job.settings.n_probs or not places:
            return None
        entries = [job.entries[place] for place in places]
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [
                {rival["token"]: rival["logprob"] for rival in entry["top_logprobs"]}
                for entry in entries
            ],
            "text_offset": [],
        }

    def usage(self, job: Job) -> Json:
        """What the request took."""
        return usage(job) | {"prompt_tokens_details": {"cached_tokens": job.reused}}


def usage(job: Job) -> Json:
    """The three counts that all servers give."""
    return {
        "prompt_tokens": len(job.prompt),
        "completion_tokens": len(job.tokens),
        "total_tokens": len(job.prompt) + len(job.tokens),
    }


def ending(job: Job) -> str:
    """Why the answer ended."""
    return "length" if job.stop_type == "limit" else "stop"
