"""``mlx_lm.server`` 0.31: completions of text, scores by id, cache counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kvphase.serve.dialects.openai import OpenAI
from kvphase.serve.refusal import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kvphase.serve.front import Handler, Json
    from kvphase.serve.job import Job, Piece

__all__ = ["Mlx"]

FINGERPRINT = "0.31.2-0.32.4-Linux-6.8-x86_64-glibc2.39-applegpu_g16s"
"""Versions of mlx-lm and mlx, the platform, and the GPU's kind."""


class Mlx(OpenAI):
    """Models have no owner; each answer carries the system's fingerprint."""

    headers: ClassVar[dict[str, str]] = {"server": "BaseHTTP/0.6 Python/3.12.3"}
    takes_ids: ClassVar[bool] = False
    most_scores: ClassVar[int] = 10

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        return super().pages() | {"/health": self._health}

    async def _health(self, _: Request) -> Response:
        return self.reply({"status": "ok"})

    def card(self) -> Json:
        """The model's entry in the list."""
        return {"id": self.engine.name, "object": "model", "created": self.created}

    def check_model(self, body: Json) -> None:
        """Another name would load another model.

        Raises:
            ApiError: it cannot.
        """
        if body.get("model", "default_model") not in (self.engine.name, "default_model"):
            raise ApiError(404, "Repository Not Found")

    def scores(self, body: Json) -> int:
        """How many scores are wanted for each token.

        Raises:
            ApiError: the fields are not what this server takes.
        """
        if not isinstance(body.get("logprobs", False), bool):
            raise ApiError(400, "logprobs must be a boolean")
        count = body.get("top_logprobs", -1)
        if not isinstance(count, int) or not (count == -1 or 0 < count <= self.most_scores):
            raise ApiError(400, f"top_logprobs must be between 1 and {self.most_scores}")
        return max(count, 0)

    def completion(self, job: Job, body: Json, identity: str, piece: Piece | None = None) -> Json:
        """An answer under the name that was asked for."""
        content = super().completion(job, body, identity, piece)
        name = body.get("model", "default_model")
        return content | {"system_fingerprint": FINGERPRINT, "model": name}

    def logprobs(self, job: Job, places: range) -> Json | None:
        """Scores with ids; texts as the vocabulary writes them."""
        if not job.settings.n_probs or not places:
            return None
        return {"content": [_entry(job.entries[place]["top_logprobs"]) for place in places]}


def _entry(rivals: list[Json]) -> Json:
    listed = [
        {
            "id": rival["id"],
            "token": rival["token"].replace(" ", "\u0120"),
            "logprob": rival["logprob"],
        }
        for rival in rivals
    ]
    return {**listed[0], "top_logprobs": listed}
