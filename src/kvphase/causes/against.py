"""What something else answered to questions that this endpoint is asked too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvphase.types import Answers, Ask


@dataclass(frozen=True, slots=True)
class Against:
    """Another quantisation, KV type, runtime, version or provider."""

    name: str
    """As it is shown: a file's name, or what the endpoint calls its model."""
    asks: tuple[Ask, ...]
    """What is asked here."""
    answers: Answers
    """The other's to the same prompts; context, item and pad tell which is which."""


__all__ = ["Against"]
