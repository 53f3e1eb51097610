"""One request for all the facts that a prompt asks for at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import About, Ask, Limits, Reply, Runtime, Template

Key = tuple[tuple[int, ...], int]


class SharedReplies:
    """A runtime that answers the prompt it answered last without asking again.

    Asks that are to be prefilled anew are always sent. What is given again cost nothing and has no
    score: that was of another expected answer.
    """

    def __init__(self, runtime: Runtime) -> None:
        """Ask ``runtime``."""
        self._runtime = runtime
        self._last: tuple[Key, Reply] | None = None

    @property
    def about(self) -> About:
        """Of the runtime."""
        return self._runtime.about

    @property
    def limits(self) -> Limits:
        """Of the runtime."""
        return self._runtime.limits

    @property
    def traffic(self) -> int | None:
        """Of the runtime."""
        return self._runtime.traffic

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """As the runtime."""
        return await self._runtime.tokenize(texts, special=special)

    async def template(self) -> Template:
        """As the runtime."""
        return await self._runtime.template()

    async def complete(self, ask: Ask) -> Reply:
        """As the runtime, or the last answer again if the prompt is the same."""
        if ask.arm is Arm.COLD:
            return await self._runtime.complete(ask)
        key = ask.prompt, ask.generate
        if self._last is not None and self._last[0] == key:
            return replace(
                self._last[1],
                logprob=None,
                against=None,
                prefilled=0,
                cached=0,
                generated=0,
                seconds=0.0,
            )
        reply = await self._runtime.complete(ask)
        self._last = key, reply
        return reply
