"""SGLang 0.5: ``/generate`` with token ids, its own tokenizer, a radix cache."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar

from starlette.responses import Response

from kvphase.serve.dialects.vllm import VLlm
from kvphase.serve.front import Json, read
from kvphase.serve.refusal import ApiError
from kvphase.serve.settings import Settings, read_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from kvphase.serve.front import Handler
    from kvphase.serve.job import Job

__all__ = ["SGLang"]

VERSION = "0.5.10"
NAMES = {"max_new_tokens": "n_predict", "stop": "stop", "seed": "seed"}
SAME = ("temperature", "top_p", "top_k", "min_p")


class SGLang(VLlm):
    """Cache hits at any token; a request with another ``extra_key`` finds nothing."""

    owner: ClassVar[str] = "sglang"
    spelled: ClassVar[str] = "text"

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        pages: dict[str, Handler] = {"/health": self._health, "/v1/models": self._models}
        for name in ("/model_info", "/get_model_info"):
            pages[name] = self._model_info
        for name in ("/server_info", "/get_server_info"):
            pages[name] = self._server_info
        return pages

    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""
        return {
            "/generate": self._generate,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
            "/flush_cache": self._flush,
        }

    async def _model_info(self, _: Request) -> Response:
        name = self.engine.name
        return self.reply({"model_path": name, "tokenizer_path": name, "is_generation": True})

    async def _server_info(self, _: Request) -> Response:
        context = self.engine.context_tokens
        return self.reply({"version": VERSION, "context_length": context})

    async def _flush(self, _: Request) -> Response:
        self.desk.forget()
        return Response("Cache flushed.\n", media_type="text/plain")

    async def _generate(self, request: Request) -> Response:
        body = await read(request)
        prompt = body.get("input_ids", body.get("text"))
        if prompt is None:
            raise ApiError(400, "'input_ids' or 'text' is required")
        prompts, key = (
            read_prompts(self.engine, prompt, self.vocabulary),
            str(body.get("extra_key") or ""),
        )
        jobs = self.jobs(prompts, self._sampling(body), key)
        return await self.whole(jobs, request, lambda job: self._generated(job, body))

    def _sampling(self, body: Json) -> Settings:
        given = body.get("sampling_params") or {}
        if not isinstance(given, dict):
            raise ApiError(400, "'sampling_params' must be an object")
        known: Json = {"n_predict": 128, "temperature": 1.0, "top_k": 0, "min_p": 0.0, "top_p": 1.0}
        known |= {NAMES.get(name, name): given[name] for name in (*NAMES, *SAME) if name in given}
        every = self.engine.model.vocab_size if body.get("token_ids_logprob") else 0
        wanted = max(body.get("top_logprobs_num") or 0, every)
        return Settings.read(known | {"n_probs": wanted if body.get("return_logprob") else 0})

    def _reusable(self, prompt: Sequence[int]) -> int:
        return len(prompt)

    def _generated(self, job: Job, body: Json) -> Json:
        meta: Json = {
            "id": secrets.token_hex(16),
            "finish_reason": {"type": "length", "length": len(job.tokens)}
            if job.stop_type == "limit"
            else {"type": "stop"},
            "prompt_tokens": len(job.prompt),
            "completion_tokens": len(job.tokens),
            "cached_tokens": job.reused,
        }
        if job.settings.n_probs:
            count = body.get("top_logprobs_num") or 0
            wanted = set(body.get("token_ids_logprob") or [])
            meta |= {
                "output_token_logprobs": [_triple(entry) for entry in job.entries],
                "output_top_logprobs": [
                    [_triple(one) for one in entry["top_logprobs"][:count]] for entry in job.entries
                ],
                "output_token_ids_logprobs": [
                    [_triple(one) for one in entry["top_logprobs"] if one["id"] in wanted]
                    for entry in job.entries
                ],
            }
        return {"text": job.text, "output_ids": job.tokens, "meta_info": meta}


def _triple(entry: Json) -> list[Any]:
    """A score, an id, and no text."""
    return [entry["logprob"], entry["id"], None]
