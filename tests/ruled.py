"""An endpoint whose answers are decided by a rule."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fakes import FakeRuntime
from kvphase.types import Arm, Ask, Limits, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

CONTROLS = frozenset({Arm.SPLIT, Arm.DECODE, Arm.TOGETHER, Arm.SAMPLED})
LIMITS = Limits(4096, local_window=16, bos=(0,), controls=CONTROLS)


def chance(*what: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.blake2b(repr(what).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


@dataclass
class Ruled(FakeRuntime):
    """Right as ``right`` says; ``wrong`` gives another answer where it is true."""

    wrong: Callable[[Ask], bool] = field(default=lambda _: False)
    draw: random.Random = field(default_factory=lambda: random.Random(5))

    async def complete(self, ask: Ask) -> Reply:
        """By rule."""
        reply = await super().complete(ask)
        return replace(reply, text=" odd", margin=5.0) if self.wrong(ask) else reply


def usual(ask: Ask) -> bool:
    """Three in four right, whatever stands where."""
    return chance(ask.context, ask.item) < 0.75
