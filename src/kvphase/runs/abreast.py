"""Several questions under way at once, as many as the endpoint gains from.

A server that batches (vLLM, SGLang) answers eight questions on one cached prefix in little more
than the time of one. How many it gains from is not known beforehand: the width begins at one and
is doubled as long as that brings more answers a second. Width decides nothing else: what is asked
and in which order answers count is the flow's, and asks that are sent alone tell whether batching
changes answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runs.budget import Meter
    from kvphase.types import Ask

__all__ = ["Pace"]

TOGETHER = frozenset({Arm.SCREEN, Arm.SHIFT, Arm.TAIL, Arm.REPEAT})
"""Arms whose questions may be sent beside others. A repeat goes the way of its original: what it
shows is how repeatable answers are under the conditions of the measurement."""
GAIN = 1.2
"""Answers a second over those at half the width, from which on the greater width is kept."""
TRIES = 3
"""Batches of one width whose fastest is compared: a single one may have met a hiccup."""


class Pace:
    """How many questions are sent at once, in one sitting.

    Args:
        most: Questions under way at once that the endpoint may be sent; 1 switches this off.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._width = 1
        self._settled = self._most == 1
        self._rates: list[float] = []
        self._before = 0.0
        self._warm: tuple[int, ...] | None = None
        self._counts = False  # whether the batch that was taken says how fast its width is

    @property
    def width(self) -> int:
        """Questions at once, as things stand."""
        return self._width

    def take(self, asks: Sequence[Ask], meter: Meter) -> Sequence[Ask]:
        """The first of ``asks`` that are sent together: at least one, all on one cached prefix.

        The first question on a prefix goes alone, since it pays for it, and near the end of a
        budget questions go one by one, so that none is exceeded by more than one of them.
        """
        first = asks[0]
        self._counts = first.arm in TOGETHER and bool(first.prefix) and first.prefix == self._warm
        if not self._counts:
            return asks[:1]
        width = min(self._width, meter.surely_fit())
        count = 1
        for ask in asks[1:width]:
            if ask.arm not in TOGETHER or ask.prefix != first.prefix:
                break
            count += 1
        return asks[:count]

    def note(self, asks: Sequence[Ask], seconds: float, *, again: bool) -> None:
        """Learn from a batch: how long it took, and whether any of it had to be asked again."""
        last = asks[-1]
        self._warm = None if last.arm is Arm.COLD else last.prefix
        if again and len(asks) > 1:
            self._width, self._settled = len(asks) // 2, True
        elif self._counts and not self._settled and len(asks) == self._width:
            self._rates.append(len(asks) / max(seconds, 1e-9))
            if len(self._rates) == TRIES:
                self._compare(max(self._rates))

    def _compare(self, rate: float) -> None:
        """Widen while it pays; otherwise go back to the width before, for good."""
        self._rates = []
        if self._before and rate < GAIN * self._before:
            self._width, self._settled = max(1, self._width // 2), True
        elif self._width >= self._most:
            self._settled = True
        else:
            self._before, self._width = rate, min(2 * self._width, self._most)
