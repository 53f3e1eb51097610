"""What every cause asks with: contents in this tokenizer's words, and the same asked otherwise."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kvphase.probes.content import design_key, filler
from kvphase.probes.design import NeedleDesign, needed
from kvphase.probes.needle import must_fit, plan_needle
from kvphase.types import Template

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvphase.causes.against import Against
    from kvphase.causes.talk import Talk
    from kvphase.types import About, Arm, Ask, Limits, Vocab

RECORDS, MODULUS = 24, 8
"""Records of a content and residues over which they are balanced."""
WINDOW = 128
"""Local window where the runtime does not tell."""
GRAIN = 256
"""Prefix lengths lie around a multiple of this."""
ALIGNED, UNALIGNED = (0, 128, 4, 132), (1, 2, 3)
"""Tokens beyond that multiple, one content each: multiples of 256, of 128 but not of 256, of 4 but
not of 128; and of none of these, where a cached prefix ends inside a compressor's group."""
FIRST_LOOK = 8
"""Questions of each content that are asked first: where nothing differs there, the rest is not."""
QUESTIONS = RECORDS * len(ALIGNED)
"""Compared by most tests."""
OWN = 950
"""Context of the user's own prompt."""
LONGEST = 2048
"""Prompt tokens that are tried unless more is asked for."""


@dataclass(frozen=True, slots=True)
class Content:
    """One context of records with its questions."""

    asks: tuple[Ask, ...]
    """In random order."""
    start: int
    """Index of the first token that is not BOS or template."""
    end: int
    """Index of the first demonstration: filler before it moves nothing but the question."""


@dataclass(frozen=True, slots=True)
class Scene:
    """An endpoint, and what a diagnosis of it knows so far."""

    about: About
    limits: Limits
    vocab: Vocab
    seed: int = 0
    longest: int = LONGEST
    """Prompt tokens that are tried at most."""
    template: Template | None = None
    """The chat template; None where there is none."""
    talk: Talk | None = None
    """Chat requests as token ids; None where none can be rendered."""
    against: tuple[Against, ...] = ()
    """What else answered the same questions."""
    own: tuple[Ask, ...] = ()
    """The user's own prompt at several shifts."""
    found: frozenset[str] = field(default=frozenset())
    """Causes found before this one."""
    contexts: int = 80
    """Contexts asked for phase at most."""

    @property
    def design(self) -> NeedleDesign:
        """Of one content, as short as it can be."""
        design = NeedleDesign(
            kind="insequence",
            context_tokens=0,
            records=RECORDS,
            contexts=1,
            modulus=MODULUS,
            window=WINDOW if self.limits.local_window is None else self.limits.local_window,
            repeats=0,
            cold=0,
            alone=0,
        )
        return replace(design, context_tokens=needed(design, len(self.limits.bos), 0))

    def check(self) -> None:
        """Refuse an endpoint whose context or tokenizer holds no content.

        Raises:
            UsageError: with what would be needed.
        """
        most = max(_base_lengths(self.design))
        for tokens in (self.design.context_tokens, most):
            design = replace(self.design, context_tokens=tokens)
            must_fit(self.vocab, self.limits, design, Template())

    def content(
        self, number: int, tokens: int | None = None, template: Template | None = None
    ) -> Content:
        """The content of this number; equal numbers have equal words.

        Args:
            number: Decides words and order; the context of its asks.
            tokens: Of its prompts; as few as it takes if not given.
            template: Asked inside this chat template.
        """
        design = self.design
        template = template or Template()
        extra = len(template.head) + len(template.tail)
        size = (tokens or design.context_tokens) + extra
        design = replace(design, context_tokens=size)
        return _content(self.vocab, self.limits, design, self.seed, number, template)

    def base(self, *, unaligned: bool = False) -> list[Content]:
        """The contents on which two ways of asking are compared.

        Their prefixes end at the edges of groups of 4 tokens, some also of 128 and 256; with
        ``unaligned`` those that do not come after them.
        """
        lengths = _base_lengths(self.design)
        count = len(lengths) if unaligned else len(ALIGNED)
        return [self.content(number, tokens) for number, tokens in enumerate(lengths[:count])]

    def looks(self, *, unaligned: bool = False) -> list[list[Ask]]:
        """Their questions: those of the first look with the user's own, then the others."""
        parts = (slice(0, FIRST_LOOK), slice(FIRST_LOOK, None))
        base = self.base(unaligned=unaligned)
        first, rest = ([ask for c in base for ask in c.asks[part]] for part in parts)
        return [[*first, *self.own], rest]

    @property
    def fresh(self) -> bool:
        """Whether prompts are evaluated from their start, since cached prefixes change answers."""
        return bool(self.found & {"cache", "split"})

    def fair(self, asks: Iterable[Ask]) -> list[Ask]:
        """The same questions, cold where cached prefixes are known to change answers."""
        return [cold(ask) if self.fresh else ask for ask in asks]


def _base_lengths(design: NeedleDesign) -> list[int]:
    """Prompt lengths of the base contents: their prefixes lie around a multiple of ``GRAIN``."""
    prefix = design.context_tokens - design.question
    multiple = -(-prefix // GRAIN) * GRAIN
    return [multiple + more + design.question for more in (*ALIGNED, *UNALIGNED)]


@lru_cache(maxsize=256)
def _content(
    vocab: Vocab,
    limits: Limits,
    design: NeedleDesign,
    seed: int,
    number: int,
    template: Template,
) -> Content:
    own = seed * 1_000_003 + number
    plan = plan_needle(vocab, limits, design, own, template, balanced=False)
    (layout,) = plan.layouts
    parts = ["diagnose", design.as_json(), own, vocab.digest, template.digest]
    key = design_key(json.dumps(parts, sort_keys=True))
    asks = [
        replace(ask, context=number, item=number * 1000 + ask.item, pad=0)
        for ask in plan.screen(layout, key, 0)
    ]
    start = len(limits.bos) + len(template.head)
    return Content(tuple(asks), start, layout.end)


def otherwise(ask: Ask, arm: Arm, *, generate: int | None = None, mark: int = 0) -> Ask:
    """The same question asked in another way.

    Args:
        ask: The question.
        arm: The way.
        generate: Answer tokens; as many as before if not given.
        mark: Tells several asks in the same way apart, kept as the ask's pad.
    """
    tokens = ask.generate if generate is None else generate
    return replace(ask, id=_named(ask, arm, tokens, mark), arm=arm, generate=tokens, pad=mark)


def cold(ask: Ask) -> Ask:
    """The same with nothing to be found in a cache: its prompt is all its own."""
    return replace(ask, id=_named(ask, "cold"), prefix=(), suffix=ask.prompt)


def is_own(ask: Ask) -> bool:
    """Whether this is the user's own prompt."""
    return ask.context == OWN


def padded(
    scene: Scene, content: Content, head: int, tail: int, asks: Sequence[Ask], arm: Arm
) -> list[Ask]:
    """Questions of a content with filler before everything, and before its demonstrations.

    Args:
        scene: Gives the filler's words.
        content: What the questions are about.
        head: Filler tokens at the start: they move everything.
        tail: Filler tokens before the demonstrations: they move only the question.
        asks: Of ``content``.
        arm: Of the new asks; their pad is ``head + tail``.
    """
    prefix = asks[0].prefix
    rng = np.random.default_rng([scene.seed, asks[0].context, 5, head, tail])
    front, back = filler(rng, scene.vocab, head), filler(rng, scene.vocab, tail)
    cut, end = content.start, content.end
    moved = prefix[:cut] + tuple(front) + prefix[cut:end] + tuple(back) + prefix[end:]
    return [
        replace(
            ask,
            id=_named(ask, arm, head, tail),
            prefix=moved,
            target=ask.target + head,
            question=len(moved),
            arm=arm,
            pad=head + tail,
        )
        for ask in asks
    ]


def _named(ask: Ask, *how: object) -> str:
    """The id of an ask made from another one."""
    name = "|".join(map(str, (ask.id, *how)))
    return hashlib.blake2b(name.encode(), digest_size=10).hexdigest()


__all__ = ["Content", "Scene", "cold", "is_own", "otherwise", "padded"]
