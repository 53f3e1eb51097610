"""A stand-in that spells any text, reads it, and overlooks facts at one residue."""

from __future__ import annotations

import random
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvphase.types import About, Ask, Limits, Reply, Template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kvphase.probes.formats import Dataset, Item

_TOKEN = re.compile(r"<\|\w+\|>| ?[A-Za-z]+|\d|\s+|.", re.DOTALL)
TAIL = 25


def _is_of(item: Item, text: str) -> bool:
    facts = (item.texts[fact.text][fact.begin : fact.end] for fact in item.facts)
    return item.texts[-1][-TAIL:] in text and all(fact in text for fact in facts)


def never(_: int) -> bool:
    """A reader that overlooks nothing."""
    return False


@dataclass
class Reader:
    """Answers a file's questions from the prompt's own text."""

    dataset: Dataset
    overlooks: Callable[[int], bool] = never
    """Whether a fact at a token position is not found."""
    by_length: bool = False
    """Overlooks everything where the prompt's length is 2 modulo 4, wherever its facts stand."""
    luck: float = 0.0
    """Share of prompts whose answer is wrong whatever stands where."""
    asked: list[Ask] = field(default_factory=list)
    limits: Limits = field(default_factory=lambda: Limits(4096, bos=(0,), cold=True))
    about: About = field(default_factory=lambda: About("reader", "reader", model="reader"))
    traffic: int | None = None
    stop_after: int | None = None
    _words: dict[str, int] = field(default_factory=dict)

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Words with their space, single digits, blanks, marks."""
        assert special in (True, False)
        return [[self._id(piece) for piece in _TOKEN.findall(text)] for text in texts]

    def _id(self, piece: str) -> int:
        return self._words.setdefault(piece, len(self._words) + 1)

    async def template(self) -> Template:
        """None."""
        return Template()

    async def render(self, body: dict[str, Any]) -> str:
        """A plain chat template."""
        told = (f"<|{one['role']}|>{one['content']}" for one in body["messages"])
        return "".join(told) + "<|assistant|>"

    async def complete(self, ask: Ask) -> Reply:
        """Everything that the prompt asks for and that is not overlooked."""
        if self.stop_after is not None and len(self.asked) >= self.stop_after:
            raise KeyboardInterrupt
        self.asked.append(ask)
        spelled = {number: piece for piece, number in self._words.items()}
        pieces = [spelled[number] for number in ask.prompt[1:]]
        assert ask.prompt[0] == 0
        text = "".join(pieces)
        item = next(item for item in self.dataset.items if _is_of(item, text))
        said = [answer for answer, at in self._facts(item, text, pieces) if not self.overlooks(at)]
        size = len(ask.prompt)
        unlucky = random.Random(str(ask.prompt)).random() < self.luck
        if unlucky or (self.by_length and size % 4 == 2):
            said = []
        return Reply("\n".join(said) or "nothing", prefilled=size, generated=4, seconds=0.001)

    def _facts(self, item: Item, text: str, pieces: list[str]) -> list[tuple[str, int]]:
        """(answer, position) of every fact, found in the text itself."""
        ends, total = [], 0
        for piece in pieces:
            total += len(piece)
            ends.append(total)
        found = []
        for fact in item.facts:
            whole = item.texts[fact.text]
            start = text.index(whole[fact.begin : fact.end])
            at = 1 + next(i for i, end in enumerate(ends) if end > start)  # BOS
            answers = "pink" if fact.rule == "regex" else " ".join(fact.answers)
            found.append((answers, at))
        return found

    def opened(self, _: str, *, choice: object = None) -> Any:  # noqa: ANN401
        """In place of `open_runtime`."""
        assert choice is not None

        @asynccontextmanager
        async def one() -> AsyncIterator[Reader]:
            yield self

        return one()
