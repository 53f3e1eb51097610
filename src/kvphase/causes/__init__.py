"""Causes of wrong answers, one a file: a prediction, a test, and what it would have seen.

Cheapest and most telling first. To add one: a file with PREDICTION, SMALLEST, LEAST, ``test`` and
CAUSE; a line below; its words in the catalogue; its name counted in ``base.TESTS``.
"""

from __future__ import annotations

from kvphase.causes import (
    batch,
    cache,
    decode,
    depth,
    generation,
    instructions,
    length,
    phase,
    precision,
    question,
    repeatability,
    sampling,
    split,
    template,
)
from kvphase.causes.base import Cause

CAUSES: tuple[Cause, ...] = (
    repeatability.CAUSE,
    sampling.CAUSE,
    split.CAUSE,
    cache.CAUSE,
    decode.CAUSE,
    batch.CAUSE,
    question.CAUSE,
    length.CAUSE,
    depth.CAUSE,
    template.CAUSE,
    generation.CAUSE,
    instructions.CAUSE,
    phase.CAUSE,
    precision.CAUSE,
)
"""In the order in which they are tested."""

__all__ = ["CAUSES", "Cause"]
