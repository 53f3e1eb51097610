"""From what the user asked for to a full design, with defaults that fit the target."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.design import BLOCK, NeedleDesign, needed
from kvphase.types import Template

if TYPE_CHECKING:
    from kvphase.types import About, DesignKind, Limits

TOY_RECORDS = 24
"""The toys' shared difficulty: what they are compared at."""
TOY_QUESTIONS = 3600
"""Enough to find a toy's phase many times over, in a few seconds."""
CONTROLS = {"toy:full": 6240}
"""A control must rule out a gap of 10 points, which takes more answers than finding one."""
SERVER_CONTEXT = 2048
SERVER_CONTEXTS = 8
"""Contexts for a server's first answer: the fewest that give a t interval over contexts."""
SERVER_QUESTIONS = 4800
"""What a server is asked if the budget allows: enough to rule out a gap of 10 points."""
LEAST_CONTENTS = 3
"""Contents of a prefix-padding run."""
LENGTHS = (2048, 8192, 32768, 131072)
"""The ladder's context lengths."""
NEARLY = 0.9
"""A context this close to a rung's length is measured whole in its place."""
FLIP = "flip"
COLD_LONG = 2
"""Cold asks at a length beyond the ladder's first: each is a prefill."""
_WINDOW = 128
"""Local window assumed where the runtime does not know it (DeepSeek-V4's)."""
_LOOKUP = {
    "records": 72,
    "demonstrations": 8,
    "repeats": 100,
    "cold": 8,
    "alone": 100,
    "dense": True,
}
"""Records of two tokens and eight demonstrations, as for the published small models. Spacers of 0
to 7 tokens, as the lab's models are trained on; 24 pads, a common multiple of the strides 4, 6, 8
and 12, twice."""
PROBES: dict[str, tuple[dict[str, Any], ...]] = {
    "needle@1": (
        {
            "kind": "insequence",
            "context_tokens": 2048,
            "records": 64,
            "contexts": 16,
            "modulus": 8,
            "repeats": 100,
            "cold": 8,
            "alone": 100,
        },
    ),
    "lookup@1": (
        {
            **_LOOKUP,
            "kind": "insequence",
            "modulus": 8,
            "context_tokens": 672,
            "contexts": 72,
        },
    ),
    "lookup-prefix@1": (
        {
            **_LOOKUP,
            "kind": "prefix",
            "modulus": 24,
            "context_tokens": 384,
            "contexts": 20,
        },
    ),
}
"""Named designs that never change: what two runs must share to be compared."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``check`` was asked to do; None is "as fits the target"."""

    context: int | None = None
    """Prompt tokens; one rung at that length and no completion flip."""
    records: int | None = None
    questions: int | None = None
    """Screen questions of each needle rung; rounded up to whole prefills."""
    design: DesignKind = "insequence"
    modulus: int = 8
    seed: int = 0
    cold: int | None = None
    """Cold asks of the audit."""
    chat: bool = False
    """Ask inside the server's chat template instead of raw text."""
    rungs: tuple[str, ...] = ()
    """Rungs to climb, ``flip`` or a number of tokens; empty for all that fit."""
    early: bool = True
    """Look at the answers before all are there."""
    adapt: bool = True
    """Choose the number of records on a pilot, on servers."""
    confirm: Literal["auto", "always", "never"] = "auto"
    """Shift whole contexts after a finding, in any case, or never."""
    frozen: tuple[dict[str, Any], ...] = ()
    """Designs of another run or of a named probe, taken over as they are."""

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON gives them back."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Settings:
        """From `as_json`."""
        many: dict[str, Any] = {name: tuple(values[name]) for name in ("rungs", "frozen")}
        return cls(**{**values, **many})


def rungs(settings: Settings, about: About, limits: Limits) -> list[str]:
    """The rungs to climb, in order: ``flip`` or a number of tokens; ``0`` is a toy's own length.

    Raises:
        UsageError: a rung makes no sense.
    """
    if settings.frozen:
        return [str(design.get("context_tokens", FLIP)) for design in settings.frozen]
    if settings.rungs:
        return list(dict.fromkeys(_rung(rung) for rung in settings.rungs))
    if settings.context is not None:
        return [str(settings.context)]
    flips = [] if settings.chat or settings.design == "prefix" else [FLIP]
    if about.toy:
        return [*flips, "0"]
    most = limits.context_tokens - 1
    if settings.design == "prefix":
        return [str(min(SERVER_CONTEXT, most))]
    lengths = [min(n, most) for n in LENGTHS if n * NEARLY <= most] or [most]
    return [*flips, *map(str, lengths)]


def _rung(text: str) -> str:
    """``flip``, or tokens as ``2048``, ``2k``, ``128k``."""
    number = text.lower().strip()
    if number == FLIP:
        return FLIP
    factor = 1024 if number.endswith("k") else 1
    digits = number.removesuffix("k")
    if not digits.isdecimal() or not 0 < int(digits) * factor < 10**8:
        raise UsageError(message("run.bad-rung", text=text))
    return str(int(digits) * factor)


def choose(
    settings: Settings,
    about: About,
    limits: Limits,
    template: Template | None = None,
    context: int | None = None,
) -> NeedleDesign:
    """The design for this target.

    Args:
        settings: What the user asked for.
        about: Whether the target is a toy decides the defaults, over HTTP as in process.
        limits: Its context length and local window.
        template: Of the chat, if one is used.
        context: Tokens of this rung's prompts, 0 or None for the usual ones.

    Returns:
        A design that has not been checked against the limits yet.
    """
    template = template or Template()
    window = _WINDOW if limits.local_window is None else limits.local_window
    for frozen in settings.frozen:
        if frozen.get("context_tokens") == context:
            values: dict[str, Any] = {"window": window, **frozen}
            return NeedleDesign(**values)
    modulus = max(1, settings.modulus)
    design = NeedleDesign(
        kind=settings.design,
        context_tokens=0,
        records=settings.records or _records(settings, about),
        contexts=1,
        modulus=settings.modulus,
        window=window,
    )
    start, tail = len(limits.bos) + len(template.head), len(template.tail)
    least = needed(design, start, tail) if modulus > 1 else 0
    usual = least if about.toy else min(SERVER_CONTEXT, limits.context_tokens - 1)
    asked_for = context or settings.context
    design = replace(design, context_tokens=asked_for or max(usual, least))
    return with_counts(design, settings, about)


def _records(settings: Settings, about: About) -> int:
    fewest = TOY_RECORDS if about.toy else BLOCK
    return -(-fewest // max(1, settings.modulus)) * max(1, settings.modulus)


def with_counts(design: NeedleDesign, settings: Settings, about: About) -> NeedleDesign:
    """The same with contexts and cold asks as fit the target, however long they take."""
    each = max(1, design.asked * design.pads)
    usual = CONTROLS.get(about.model or "", TOY_QUESTIONS) if about.toy else SERVER_QUESTIONS
    contexts = -(-(settings.questions or usual) // each)
    if settings.questions is None and not about.toy:
        contexts = max(contexts, SERVER_CONTEXTS)
    if design.kind == "prefix":
        contexts = max(contexts, LEAST_CONTENTS) if about.toy or settings.questions else 3
    prefills = contexts * design.pads
    cold = 100 if about.toy else max(COLD_LONG, prefills // 4)
    return replace(
        design,
        contexts=max(1, contexts),
        cold=cold if settings.cold is None else settings.cold,
    )
