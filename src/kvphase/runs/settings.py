"""From what the user asked for to a full design, with defaults that fit the target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvphase.probes.design import BLOCK, NeedleDesign, needed
from kvphase.types import Template

if TYPE_CHECKING:
    from kvphase.types import About, DesignKind, Limits

TOY_RECORDS = 24
"""The toys' shared difficulty: what they are compared at."""
TOY_QUESTIONS = 3600
"""Enough to find a toy's phase many times over, in a few seconds."""
CONTROLS = {"toy:full": 4800}
"""A control must rule out a gap of 10 points, which takes more answers than finding one."""
SERVER_CONTEXT = 2048
SERVER_CONTEXTS = 8
"""Contexts for a server's first answer: the fewest that give a t interval over contexts."""
LEAST_CONTENTS = 3
"""Contents of a prefix-padding run."""
_WINDOW = 128
"""Local window assumed where the runtime does not know it (DeepSeek-V4's)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``check`` was asked to do; None is "as fits the target"."""

    context: int | None = None
    """Prompt tokens."""
    records: int | None = None
    questions: int | None = None
    """Screen questions of the whole run; rounded up to whole prefills."""
    design: DesignKind = "insequence"
    modulus: int = 8
    seed: int = 0
    cold: int | None = None
    """Cold asks of the audit."""
    chat: bool = False
    """Ask inside the server's chat template instead of raw text."""


def choose(
    settings: Settings, about: About, limits: Limits, template: Template | None = None
) -> NeedleDesign:
    """The design for this target.

    Args:
        settings: What the user asked for.
        about: Whether the target is a toy decides the defaults, over HTTP as in process.
        limits: Its context length and local window.
        template: Of the chat, if one is used.

    Returns:
        A design that has not been checked against the limits yet.
    """
    template = template or Template()
    modulus = max(1, settings.modulus)
    design = NeedleDesign(
        kind=settings.design,
        context_tokens=0,
        records=settings.records or _records(settings, about),
        contexts=1,
        modulus=settings.modulus,
        window=_WINDOW if limits.local_window is None else limits.local_window,
    )
    start, tail = len(limits.bos) + len(template.head), len(template.tail)
    least = needed(design, start, tail) if modulus > 1 else 0
    usual = least if about.toy else min(SERVER_CONTEXT, limits.context_tokens - 1)
    design = replace(design, context_tokens=settings.context or max(usual, least))
    return _with_counts(design, settings, about)


def _records(settings: Settings, about: About) -> int:
    fewest = TOY_RECORDS if about.toy else BLOCK
    return -(-fewest // max(1, settings.modulus)) * max(1, settings.modulus)


def _with_counts(design: NeedleDesign, settings: Settings, about: About) -> NeedleDesign:
    each = max(1, design.asked * design.pads)
    if settings.questions is not None:
        contexts = -(-settings.questions // each)
    else:
        usual = CONTROLS.get(about.model or "", TOY_QUESTIONS)
        contexts = -(-usual // each) if about.toy else SERVER_CONTEXTS
    if design.kind == "prefix":
        contexts = max(contexts, LEAST_CONTENTS) if about.toy or settings.questions else 3
    prefills = contexts * design.pads
    cold = 100 if about.toy else max(2, prefills // 4)
    return replace(
        design,
        contexts=max(1, contexts),
        cold=cold if settings.cold is None else settings.cold,
    )
