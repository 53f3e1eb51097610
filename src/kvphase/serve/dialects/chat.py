"""OpenAI's chat completions (API reference of 2026), and nothing beyond them.

The toys' chat template is BOS and the last user's text: what follows a question must be its answer.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, ClassVar

from kvphase.serve.dialects.openai import OpenAI, ending
from kvphase.serve.front import Json, read
from kvphase.serve.refusal import ApiError
from kvphase.serve.settings import read_prompts

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kvphase.serve.front import Handler
    from kvphase.serve.job import Job, Piece

__all__ = ["Chat", "content_entry"]


class Chat(OpenAI):
    """Messages in, a message out."""

    most_scores: ClassVar[int] = 20
    path: ClassVar[str] = "/v1/chat/completions"

    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""
        return {self.path: self._chat}

    async def _chat(self, request: Request) -> Response:
        body = await read(request)
        self.check_model(body)
        settings = self.settings(body)
        jobs = self.jobs(read_prompts(self.engine, self.rendered(body), self.vocabulary), settings)
        identity = f"chatcmpl-{secrets.token_hex(12)}"

        def form(job: Job, piece: Piece | None = None) -> Json:
            return self.message(job, body, identity, piece)

        if settings.stream:
            return self.stream(jobs, lambda job: self.events(job, form))
        return await self.whole(jobs, request, form)

    def rendered(self, body: Json) -> str:
        """The last user's text.

        Raises:
            ApiError: there is none.
        """
        messages = body.get("messages")
        texts = [
            one.get("content")
            for one in (messages if isinstance(messages, list) else [])
            if isinstance(one, dict) and one.get("role") == "user"
        ]
        if not texts or not isinstance(texts[-1], str):
            raise ApiError(400, "'messages' must hold a user's text")
        return texts[-1]

    def scores(self, body: Json) -> int:
        """How many scores are wanted for each token.

        Raises:
            ApiError: more than there are.
        """
        if not body.get("logprobs"):
            return 0
        count = body.get("top_logprobs") or 1
        if not isinstance(count, int) or not 0 <= count <= self.most_scores:
            raise ApiError(400, f"'top_logprobs' must be an integer up to {self.most_scores}")
        return count

    def message(self, job: Job, body: Json, identity: str, piece: Piece | None = None) -> Json:
        """An answer, or with ``piece`` one event of its stream."""
        del body
        streamed = job.settings.stream
        places = piece.places if piece else range(0 if streamed else len(job.tokens))
        text = piece.text if piece else "" if streamed else job.text
        choice = {
            "index": 0,
            "delta" if streamed else "message": {"role": "assistant", "content": text},
            "logprobs": self.logprobs(job, places),
            "finish_reason": None if piece else ending(job),
        }
        content = {
            "id": identity,
            "object": "chat.completion.chunk" if streamed else "chat.completion",
            "created": self.created,
            "model": self.engine.name,
            "choices": [choice],
        }
        return content if piece else content | {"usage": self.usage(job)}

    def logprobs(self, job: Job, places: range) -> Json | None:
        """Scores of the answer tokens at ``places``, where any were asked for."""
        if not job.settings.n_probs or not places:
            return None
        return {"content": [content_entry(job.entries[place]) for place in places]}


def content_entry(entry: Json) -> Json:
    """One token as chats list it: text, score, bytes, and the best of its rivals."""

    def plain(one: Json) -> Json:
        return {name: one[name] for name in ("token", "logprob", "bytes")}

    return plain(entry) | {"top_logprobs": [plain(rival) for rival in entry["top_logprobs"]]}
