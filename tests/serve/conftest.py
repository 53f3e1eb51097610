"""A model that is always right, so that the server's own mistakes show."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest

from kvphase.runtimes.toy import ToyEngine, ToyWords
from kvphase.serve import Faults, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Serve = Callable[..., httpx2.Client]

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP only: reading all certificates takes longer than a test."""


@dataclass
class Memory:
    """The cache of `Lookup`: the ids seen so far."""

    ids: list[int] = field(default_factory=list)
    length: int = 0

    def fork(self) -> Memory:
        """Copy the ids."""
        return Memory(list(self.ids), self.length)


class Lookup:
    """After ``key :`` it names the value that stood behind that key before."""

    def __init__(self, vocab_size: int) -> None:
        self.config: dict[str, Any] = {"context_tokens": 600}
        self.vocab_size = vocab_size
        self.local_window = 16
        self.evaluated = 0

    def start(self) -> Memory:
        """Begin with nothing."""
        return Memory()

    def extend(self, cache: Memory, ids: Sequence[int]) -> NDArray[np.float32]:
        """Score each place; no two tokens tie."""
        rows = np.zeros((len(ids), self.vocab_size), np.float32)
        for row, token in zip(rows, ids, strict=True):
            cache.ids.append(token)
            row[:] = np.sin(np.arange(self.vocab_size) + token)
            row[self._next(cache.ids)] += 4
        cache.length = len(cache.ids)
        self.evaluated += len(ids)
        return rows

    @staticmethod
    def _next(ids: list[int]) -> int:
        asked = ids[-2:]
        pairs = zip(ids, ids[1:], ids[2:], strict=False)
        return next((value for *pair, value in pairs if pair == asked), 2)


@pytest.fixture
def engine() -> ToyEngine:
    words = ToyWords.load()
    return ToyEngine("lookup", Lookup(len(words.tokens)), words)


@pytest.fixture
def serve(engine: ToyEngine) -> Iterator[Serve]:
    """Start servers over a real socket: ``serve("reset=1", throttle=...)`` is a client of one."""
    with ExitStack() as stack:

        def start(*faults: str, throttle: float | None = None) -> httpx2.Client:
            url = stack.enter_context(serving(engine, Faults.parse(faults), throttle))
            client = httpx2.Client(base_url=url, timeout=20, verify=NO_CERTIFICATES)
            return stack.enter_context(client)

        yield start
