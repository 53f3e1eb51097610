"""LM Studio 0.4: completions of text, a list of models with what is loaded, no scores or hits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kvphase.serve.dialects.openai import OpenAI, usage

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kvphase.serve.front import Handler, Json
    from kvphase.serve.job import Job

__all__ = ["LMStudio"]

IDLE = "toy-that-is-not-loaded"


class LMStudio(OpenAI):
    """Two models on disk, one of them loaded; asking for the other would load it."""

    owner: ClassVar[str] = "organization_owner"
    takes_ids: ClassVar[bool] = False

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        return super().pages() | {"/api/v1/models": self._local}

    async def _models(self, _: Request) -> Response:
        """All models on disk, loaded or not."""
        return self.reply({"object": "list", "data": [self.card(), self.card() | {"id": IDLE}]})

    async def _local(self, _: Request) -> Response:
        context = self.engine.context_tokens
        loaded = [{"id": self.engine.name, "config": {"context_length": context}}]
        models = [self._entry(self.engine.name, loaded), self._entry(IDLE, [])]
        return self.reply({"models": models})

    def _entry(self, key: str, loaded: list[Json]) -> Json:
        return {
            "type": "llm",
            "publisher": "kvphase",
            "key": key,
            "display_name": key,
            "architecture": "toy",
            "quantization": {"name": "F16", "bits_per_weight": 16},
            "size_bytes": self.engine.file_bytes,
            "params_string": None,
            "loaded_instances": loaded,
            "max_context_length": self.engine.context_tokens,
            "format": "gguf",
        }

    def logprobs(self, job: Job, places: range) -> Json | None:
        """None, whatever was asked for."""
        return None

    def usage(self, job: Job) -> Json:
        """Without cache counts."""
        return usage(job)
