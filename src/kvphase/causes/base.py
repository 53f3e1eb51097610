"""What a cause is: a prediction, a test of it, and what the test would have seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from kvphase.catalogue import Message
    from kvphase.causes.scene import Scene
    from kvphase.types import Ask, Flow

ALPHA = 0.0005
"""Chance that anything at all is found where nothing is."""
TESTS = 14
"""Causes among which ``ALPHA`` is shared (Bonferroni), tested or not."""
LEVEL = ALPHA / TESTS
"""Largest p value at which one cause is found."""
POWER = 0.99
"""Chance to find an effect of a cause's smallest size."""

Status = Literal["found", "not-found", "not-tested"]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One question that shows a finding: the same content asked in two ways, two answers."""

    first: Ask
    second: Ask
    answers: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one cause."""

    cause: str
    status: Status
    evidence: Message
    """What was seen, or what is needed where nothing was tested."""
    would_have_seen: Message | None = None
    """The smallest effect that the test would have found with the declared power."""
    p_value: float | None = None
    effect_pp: float | None = None
    """Percentage points; of what, the evidence says."""
    ci95: tuple[float, float] | None = None
    """Of the effect, where the test gives one."""
    n: int = 0
    """Questions that the test rests on."""
    exhibits: tuple[Exhibit, ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """What a cause's test asks at most."""

    questions: int
    prefills: int
    """Prompts that are evaluated from their start."""
    tokens: int = 1
    """Answer tokens of each question."""


class Test(Protocol):
    """The test of one cause, as a flow without I/O."""

    def __call__(self, scene: Scene) -> Flow[Finding]:
        """Yield asks, receive their answers, return the finding."""
        ...


@dataclass(frozen=True, slots=True)
class Cause:
    """One possible cause of wrong answers; its file declares everything about it."""

    name: str
    test: Test
    smallest: float
    """Effect found with ``power``, a fraction."""
    least: float
    """Smaller estimates are not found, however sure they are; a fraction."""
    price: Price
    needs: tuple[Need, ...] = field(default=())
    """What the endpoint must be able to do."""
    power: float = POWER


class Need(Protocol):
    """One thing that a test needs."""

    def __call__(self, scene: Scene) -> Message | None:
        """Say what is missing; None if nothing is."""
        ...


def missing(cause: Cause, scene: Scene) -> Message | None:
    """The first thing that ``cause`` needs and the endpoint has not."""
    return next((why for need in cause.needs if (why := need(scene)) is not None), None)


__all__ = [
    "ALPHA",
    "LEVEL",
    "POWER",
    "TESTS",
    "Cause",
    "Exhibit",
    "Finding",
    "Need",
    "Price",
    "Status",
    "Test",
    "missing",
]
