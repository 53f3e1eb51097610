"""Stand-ins for tests of faults and flows; measurements use real parts."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvphase.types import About, Arm, Ask, Limits, Reply, Template, Vocab, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PHRASE = ("and", "so", "it", "went", "on", "as", "before")


def small_vocab(keys: int = 64, values: int = 40) -> Vocab:
    """Words of an imaginary tokenizer; ids are consecutive from 1 (0 is BOS)."""
    names = [f" k{i}" for i in range(keys)] + [f" v{i}" for i in range(values)]
    words = [Word(i + 1, text) for i, text in enumerate(names)]
    first = len(words) + 1
    fillers = tuple(Word(first + i, f" {text}") for i, text in enumerate(PHRASE))
    last = first + len(fillers)
    return Vocab(
        keys=tuple(words[:keys]),
        values=tuple(words[keys:]),
        phrases=(fillers, fillers[2:] + fillers[:2]),
        separator=Word(last, ":"),
        terminator=Word(last + 1, ";"),
        digest="imaginary",
    )


def right_at(rate: Callable[[Ask], float]) -> Callable[[Ask], bool]:
    """Right with probability ``rate(ask)``, fixed by the context, the item and the pad."""

    def decide(ask: Ask) -> bool:
        seed = hashlib.blake2b(f"{ask.context}|{ask.item}|{ask.pad}".encode()).digest()
        return random.Random(seed).random() < rate(ask)

    return decide


@dataclass
class FakeRuntime:
    """Answers by rule, counts what it was asked; no tokenizer behind it."""

    right: Callable[[Ask], bool] = field(default=lambda _: True)
    asked: list[str] = field(default_factory=list)
    fail: Callable[[Ask, int], None] = field(default=lambda _ask, _count: None)
    limits: Limits = field(default_factory=lambda: Limits(4096, local_window=16, bos=(0,)))
    about: About = field(default_factory=lambda: About("fake", "fake", model="fake"))
    traffic: int | None = None
    _prefix: tuple[int, ...] = ()

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Not used with a prepared vocabulary."""
        return [[] for _ in texts]

    async def template(self) -> Template:
        """No template."""
        return Template()

    async def complete(self, ask: Ask) -> Reply:
        """By rule."""
        self.fail(ask, len(self.asked))
        self.asked.append(ask.id)
        hit = ask.arm is not Arm.COLD and ask.prefix == self._prefix
        self._prefix = ask.prefix
        cached = len(ask.prefix) if hit else 0
        text = ask.expected if self.right(ask) else " wrong"
        return Reply(
            text, prefilled=len(ask.prompt) - cached, cached=cached, generated=1, seconds=0.001
        )
