"""The one sequence that the server remembers: llama-server's slot 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.serve.vocabulary import known

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvphase.runtimes.toy import Cache, Scores, ToyEngine

__all__ = ["Slot"]

SPACING = 128
"""Prompt tokens between two checkpoints."""
LAST = 8
"""So many last tokens of a prompt have a checkpoint each: two questions on one prefix part here."""


class Slot:
    """Reuses the longest common prefix of the last sequence and a new prompt.

    A compressed cache cannot be cut at an arbitrary token, so the slot keeps checkpoints: every
    128 tokens, at each of a prompt's last eight tokens, and where an earlier prompt branched off.
    What counts as reused is what a checkpoint really held.
    """

    def __init__(self, engine: ToyEngine) -> None:
        """Begin with an empty sequence."""
        self._engine = engine
        self._cache = engine.start()
        self._checkpoints: dict[int, Cache] = {0: engine.start()}
        self._branch = 0
        self.tokens: list[int] = []
        """The sequence whose state the slot holds."""

    def rewind(self, prompt: Sequence[int], most: int) -> int:
        """Go back to the last checkpoint that agrees with ``prompt``.

        At least the prompt's last token is left to evaluate, since its scores are wanted.

        Args:
            prompt: What is to be evaluated.
            most: So many of its tokens may be taken from the cache.

        Returns:
            How many of the prompt's tokens are in the cache now.
        """
        self._branch = min(_common(self.tokens, prompt[:-1]), most)
        kept = max(place for place in self._checkpoints if place <= self._branch)
        self._checkpoints = {n: c for n, c in self._checkpoints.items() if n <= kept}
        self._cache = self._checkpoints[kept].fork()
        self.tokens = list(prompt[:kept])
        return kept

    def pieces(self, prompt: Sequence[int]) -> Iterator[Sequence[int]]:
        """What is left of ``prompt``, cut where a checkpoint is due."""
        start, end = len(self.tokens), len(prompt)
        places = {*range(0, end, SPACING), *range(end - LAST, end), self._branch, end}
        for place in sorted(place for place in places if place > start):
            yield prompt[start:place]
            start = place

    def extend(self, ids: Sequence[int]) -> Scores:
        """Evaluate ``ids`` (at least one); return the scores of the token after them."""
        scores = self._engine.extend(self._cache, known(ids, self._engine.model.vocab_size))
        self.tokens += ids
        return scores

    def checkpoint(self) -> None:
        """Remember the state here."""
        self._checkpoints[len(self.tokens)] = self._cache.fork()


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
