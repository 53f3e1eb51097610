"""vLLM 0.32: completions of token ids, its own tokenizer, a cache of whole blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from starlette.responses import Response

from kvphase.serve.dialects.openai import OpenAI
from kvphase.serve.front import Json, read, token
from kvphase.serve.refusal import ApiError
from kvphase.serve.slot import SPACING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from kvphase.serve.front import Handler
    from kvphase.serve.job import Desk, Job, Piece

__all__ = ["VLlm"]

VERSION = "0.32.0"


class VLlm(OpenAI):
    """Hits are whole blocks of 128 tokens, told as with ``--enable-prompt-tokens-details``."""

    owner: ClassVar[str] = "vllm"
    most_scores: ClassVar[int] = 20

    def __init__(self, desk: Desk) -> None:
        """Answer for ``desk``."""
        super().__init__(desk)
        desk.reusable = self._reusable

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        return super().pages() | {"/health": self._health, "/version": self._version}

    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""
        own = {"/tokenize": self._tokenize, "/detokenize": self._detokenize}
        return {"/v1/completions": self._completions, **own}

    def card(self) -> Json:
        """The model's entry in the list."""
        root = {"root": self.engine.name, "parent": None}
        return super().card() | root | {"max_model_len": self.engine.context_tokens}

    async def _health(self, _: Request) -> Response:
        return Response(status_code=200)

    async def _version(self, _: Request) -> Response:
        return self.reply({"version": VERSION})

    async def _tokenize(self, request: Request) -> Response:
        body = await read(request)
        text, words = body.get("prompt"), self.vocabulary
        if not isinstance(text, str):
            raise ApiError(400, "toy models have no chat template; give a 'prompt'")
        start = [words.bos] if body.get("add_special_tokens", True) else []
        ids = start + words.encode(text, special=True)
        return self.reply(
            {"count": len(ids), "max_model_len": self.engine.context_tokens, "tokens": ids}
        )

    async def _detokenize(self, request: Request) -> Response:
        ids = [token(one) for one in (await read(request)).get("tokens", [])]
        if ids and not 0 <= min(ids) <= max(ids) < len(self.vocabulary.tokens):
            raise ApiError(400, "token ids must lie inside the vocabulary")
        return self.reply({self.spelled: self.vocabulary.decode(ids)})

    spelled: ClassVar[str] = "prompt"
    """What the field with a detokenized text is called."""

    def key(self, body: Json) -> str:
        """Under which key the cache is looked up: the salt."""
        return str(body.get("cache_salt") or "")

    def _reusable(self, prompt: Sequence[int]) -> int:
        return (len(prompt) - 1) // SPACING * SPACING

    def completion(self, job: Job, body: Json, identity: str, piece: Piece | None = None) -> Json:
        """An answer with the ids of its prompt, where these were asked for."""
        content = super().completion(job, body, identity, piece)
        if body.get("return_token_ids"):
            ids = {"prompt_token_ids": list(job.prompt), "token_ids": job.tokens}
            content["choices"][0] |= ids
        if body.get("return_tokens_as_token_ids"):
            self._name_by_id(job, content["choices"][0]["logprobs"])
        return content

    def _name_by_id(self, job: Job, logprobs: Json | None) -> None:
        """Write ``token_id:N`` in the place of texts."""
        if logprobs is None:
            return
        logprobs["top_logprobs"] = [
            {f"token_id:{rival['id']}": rival["logprob"] for rival in entry["top_logprobs"]}
            for entry in job.entries
        ]
        logprobs["tokens"] = [f"token_id:{entry['id']}" for entry in job.entries]
