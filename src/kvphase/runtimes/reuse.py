"""Whether questions find their prefix in the server's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvphase.types import Ask

__all__ = ["Reuse"]

SLACK = 2
"""Blocks that may be missing: the last whole one is often evaluated again."""
FASTER = 0.5
"""Share of the first question's time that a question on a cached prefix takes at most."""
BRIEF = 1.0
"""Seconds of a first question below which its time shows nothing: most of it is not the prefill."""


class Reuse:
    """Follows one prefix after the other; asked before a question and told after it."""

    def __init__(self, grain: int = 1, settle: int = 1) -> None:
        """Start with an empty cache.

        Args:
            grain: Hits land on multiples of so many tokens.
            settle: Questions on a prefix before it is expected to be found.
        """
        self.lost: int = 0
        """Questions that should have found their prefix and did not."""
        self.kept: int = 0
        """Questions that found it."""
        self._grain = grain
        self._settle = settle
        self._prefix: tuple[int, ...] | None = None
        self._asked = 0
        self._first = 0.0
        self._warm = False

    def expects(self, ask: Ask) -> bool:
        """Whether the prefix of ``ask`` was found by the last question on it."""
        return self._warm and bool(ask.prefix) and ask.prefix == self._prefix

    def forget(self) -> None:
        """The server may have lost everything."""
        self._warm, self._prefix, self._asked = False, None, 0

    def notice(self, ask: Ask, cached: int | None, seconds: float) -> None:
        """Learn from an answer.

        Args:
            ask: What was answered, its cache not bypassed.
            cached: Prompt tokens that the server says it found; None if it says nothing.
            seconds: That the answer took.
        """
        if ask.prefix != self._prefix:
            self._prefix, self._asked, self._first = ask.prefix, 0, seconds
            self._warm = False
        self._asked += 1
        if cached is not None:
            self._warm = cached > 0 and cached >= len(ask.prefix) - SLACK * self._grain
        elif self._asked > 1:
            self._warm = self._first < BRIEF or seconds <= FASTER * self._first
        if self._asked > self._settle:
            self.kept += self._warm
            self.lost += not self._warm
