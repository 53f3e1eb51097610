"""The grid of a compressed cache, and where a span stands on it. Positions count from 0."""

from __future__ import annotations

from dataclasses import dataclass

from kvphase.catalogue import message
from kvphase.errors import UsageError

NEEDLE = 16
"""Tokens of the longest span that a needle test speaks for; its own needles have four. What is
read from a longer text does not stand at the phase of its first token."""
LARGEST = 4096
"""Tokens of the longest stride or window that is believed."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Entry j pools ``window`` tokens, the last of them at ``j * stride + stride - 1``.

    That is DeepSeek-V4's alignment; where windows do not overlap it is anybody's.
    """

    stride: int
    window: int

    @classmethod
    def of(cls, stride: int, window: int | None = None) -> Grid:
        """A grid; windows do not overlap unless ``window`` says so.

        Raises:
            UsageError: a size is not positive, far too large, or windows would leave gaps.
        """
        size = stride if window is None else window
        if not (1 <= stride <= LARGEST and 1 <= size <= LARGEST):
            raise UsageError(message("layout.bad-size", most=LARGEST))
        if size < stride:
            raise UsageError(message("layout.window-below", window=size, stride=stride))
        return cls(stride, size)

    def phase(self, position: int) -> int:
        """``position`` modulo the stride."""
        return position % self.stride

    def straddles(self, start: int, end: int) -> bool:
        """Whether no single window holds all tokens from ``start`` to before ``end``.

        Of the windows that hold the last token the first one reaches back farthest.
        """
        first = (end - 1) // self.stride * self.stride - (self.window - self.stride)
        return start < first


@dataclass(frozen=True, slots=True)
class Stand:
    """One span as it stands in one version of the prompt."""

    start: int
    """Index of its first token, BOS and template included."""
    end: int
    """Index behind its last token."""
    total: int
    """Tokens of the prompt."""

    @property
    def tokens(self) -> int:
        """Tokens of the span."""
        return self.end - self.start

    @property
    def depth(self) -> float:
        """Share of the prompt that stands before it, 0 to 1."""
        return self.start / max(1, self.total)

    @property
    def needle(self) -> bool:
        """Whether it is short enough for what a needle test says."""
        return self.tokens <= NEEDLE

    def moved(self, by: int, total: int) -> Stand:
        """The same span ``by`` tokens later in a prompt of ``total`` tokens."""
        return Stand(self.start + by, self.end + by, total)


__all__ = ["NEEDLE", "Grid", "Stand"]
