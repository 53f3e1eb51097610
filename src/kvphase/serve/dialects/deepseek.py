"""DeepSeek's own API (documentation of autumn 2026): chat, a cache of whole persisted units.

After a request its whole prompt is a unit, and so is what it has in common with an earlier one. A
later prompt hits a unit only if it begins with all of it. So A+B stores; A+C misses, but stores A;
A+D hits A.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kvphase.serve.dialects.chat import Chat
from kvphase.serve.dialects.openai import usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.serve.front import Handler, Json
    from kvphase.serve.job import Desk, Job

__all__ = ["DeepSeek", "Units"]

UNIT = 64
"""Tokens below which nothing is persisted."""
KEPT = 64
"""Prompts that are remembered, the latest ones."""


class Units:
    """The prefixes that a later prompt may hit."""

    def __init__(self) -> None:
        """Begin with none."""
        self._prompts: list[tuple[int, ...]] = []
        self._units: set[tuple[int, ...]] = set()

    def hit(self, prompt: Sequence[int]) -> int:
        """Tokens of the longest unit that ``prompt`` begins with; stores what it leaves behind."""
        asked = tuple(prompt)
        found = max((len(u) for u in self._units if asked[: len(u)] == u), default=0)
        for earlier in self._prompts:
            shared = _common(earlier, asked)
            if shared >= UNIT:
                self._units.add(asked[:shared])
        self._prompts = [*self._prompts[1 - KEPT :], asked]
        if len(asked) >= UNIT:
            self._units.add(asked)
        self._forget()
        return found

    def _forget(self) -> None:
        """Units of prompts that are no longer remembered go."""
        self._units = {
            unit
            for unit in self._units
            if any(prompt[: len(unit)] == unit for prompt in self._prompts)
        }


class DeepSeek(Chat):
    """Paths with and without ``/v1``; hits and misses are told."""

    owner: ClassVar[str] = "deepseek"

    def __init__(self, desk: Desk) -> None:
        """Answer for ``desk``."""
        super().__init__(desk)
        self._units = Units()
        desk.reusable = self._units.hit

    def pages(self) -> dict[str, Handler]:
        """What answers to ``GET``."""
        return {"/models": self._models, "/v1/models": self._models}

    def calls(self) -> dict[str, Handler]:
        """What answers to ``POST``."""
        return {"/chat/completions": self._chat, "/v1/chat/completions": self._chat}

    def usage(self, job: Job) -> Json:
        """With the cache's share under DeepSeek's names."""
        return usage(job) | {
            "prompt_cache_hit_tokens": job.reused,
            "prompt_cache_miss_tokens": len(job.prompt) - job.reused,
        }


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
