"""One completion from its prompt to its last token, on the one slot of the server."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.runtimes.toy import ToyEngine, toy_names
from kvphase.serve.faults import Faults, displace, swap_best
from kvphase.serve.sampling import choose
from kvphase.serve.slot import Slot

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from kvphase.runtimes.toy import Scores
    from kvphase.serve.settings import Settings

OTHER_SLOT = "1"
"""Cache of the second slot, where there is one."""

__all__ = ["Desk", "Job", "Piece"]


@dataclass(frozen=True, slots=True)
class Piece:
    """News about a job: answer tokens, or progress of its prefill."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    places: range = range(0)
    """Which answer tokens these are."""
    processed: int | None = None
    """Prompt tokens in the cache so far; None once the answer has begun."""


@dataclass(slots=True)
class Job:
    """One completion: what was asked, and what came of it so far."""

    prompt: tuple[int, ...]
    settings: Settings
    request: int = 0
    """Ordinal of the completion request that this belongs to."""
    index: int = 0
    """Place among the prompts of its request."""
    key: str = ""
    """Nothing is found in the cache that was left there under another key."""
    reused: int = 0
    """Prompt tokens from the cache."""
    evaluated: int = 0
    """Prompt tokens evaluated so far."""
    held: int = 0
    """Tokens in the slot at the end."""
    prompt_seconds: float = 0.0
    predicted_seconds: float = 0.0
    tokens: list[int] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    """Scores of each answer token as they are reported."""
    text: str = ""
    crowded: bool = False
    """Another job was under way at some time before the answer began."""
    truncated: bool = False
    """The context was full before the answer had ended."""
    stop_type: str = "none"
    stopping_word: str = ""


class Ending:
    """Holds back text that may turn out to be the beginning of a stop word."""

    def __init__(self, words: tuple[str, ...]) -> None:
        """Watch for ``words``."""
        self._words = words
        self.held: str = ""
        self.found: str = ""

    def release(self, text: str) -> str:
        """Add ``text``; return what may be shown now."""
        text = self.held + text
        hits = [(text.index(word), word) for word in self._words if word in text]
        if hits:
            end, self.found = min(hits)
            self.held = ""
            return text[:end]
        starts = (word[:size] for word in self._words for size in range(1, len(word)))
        end = len(text) - max((len(start) for start in starts if text.endswith(start)), default=0)
        self.held = text[end:]
        return text[:end]


class Desk:
    """The server's state: one engine, one slot, one job at a time."""

    def __init__(self, engine: ToyEngine, faults: Faults, throttle: float | None) -> None:
        """Open the desk.

        Args:
            engine: The model and its tokenizer.
            faults: What goes wrong.
            throttle: Prompt tokens evaluated per second at most; None as fast as it goes.
        """
        self.engine: ToyEngine = engine
        self.faults: Faults = faults
        self.requests = 0
        """Completion requests so far."""
        self.looks = 0
        """Requests for the slots so far."""
        self.last: Job | None = None
        """The job that the slot works on, or the last one."""
        self.reusable: Callable[[Sequence[int]], int] = len
        """How many tokens of a prompt may come from the cache: all, unless a dialect says less."""
        self._throttle = throttle
        self._slot = Slot(engine)
        self._slots = {"": self._slot}
        self._restarted = False
        self._turn = asyncio.Lock()
        self._inside: list[Job] = []

    def forget(self) -> None:
        """Begin with an empty cache."""
        self._slots = {"": Slot(self.engine)}

    def _slot_of(self, key: str) -> Slot:
        """The slot whose cache a job may use; of those with a key only the latest is kept."""
        if key not in self._slots:
            self._slots = {"": self._slots[""], key: Slot(self.engine)}
        return self._slots[key]

    def restarts(self, request: int) -> bool:
        """Whether the server breaks down over this request; if so, it has another model now."""
        due = self.faults.restart
        if due is None or self._restarted or request < due:
            return False
        self._restarted = True
        self.engine = _other(self.engine)
        self.forget()
        return True

    @property
    def working(self) -> bool:
        """Whether a job is under way."""
        return self._turn.locked()

    async def work(self, job: Job) -> AsyncGenerator[Piece]:
        """Do ``job``, one after another; its fields are up to date at each piece of news."""
        self._inside.append(job)
        for one in self._inside if len(self._inside) > 1 else ():
            one.crowded = True
        try:
            async with aclosing(self._worked(job)) as news:
                async for piece in news:
                    yield piece
        finally:
            self._inside.remove(job)

    async def _worked(self, job: Job) -> AsyncGenerator[Piece]:
        async with self._turn:
            other = self.faults.batch > 0 and job.settings.id_slot > 0
            self.last, self._slot = job, self._slot_of(OTHER_SLOT if other else job.key)
            scores: Scores | None = None
            async for latest in self._prefill(job):
                scores = latest
                yield Piece(processed=job.reused + job.evaluated)
            if scores is None:
                raise RuntimeError("a prefill left no scores")
            async for piece in self._answer(job, scores):
                yield piece
            self._slot.checkpoint()
            job.held = len(self._slot.tokens)

    async def _prefill(self, job: Job) -> AsyncIterator[Scores | None]:
        """Evaluate the prompt; yield at its start and after each part."""
        reuse = job.settings.cache_prompt and not (
            self.faults.forget and self.faults.active(job.request)
        )
        most = self.reusable(job.prompt) if reuse else 0
        job.reused = self._slot.rewind(job.prompt, most)
        yield None
        started = time.perf_counter()
        for ids in self._slot.pieces(job.prompt):
            scores = self._slot.extend(ids)
            self._slot.checkpoint()
            job.evaluated += len(ids)
            await self._slow_down(started, job.evaluated)
            job.prompt_seconds = time.perf_counter() - started
            yield scores

    async def _slow_down(self, started: float, evaluated: int) -> None:
        """Give other requests a turn; as long a one as the throttle wants."""
        due = started + evaluated / self._throttle if self._throttle else 0.0
        await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def _answer(self, job: Job, scores: Scores) -> AsyncIterator[Piece]:
        """Generate until a limit or a stop word; yield each token with the text it releases."""
        if self.faults.strikes("empty", job.request):
            job.stop_type = "eos"
            return
        shift = self.faults.shift(job.prompt, job.reused, job.request, crowded=job.crowded)
        ending = Ending(job.settings.stop)
        random = np.random.default_rng(job.settings.seed if job.settings.seed >= 0 else None)
        started = time.perf_counter()
        while job.stop_type == "none":
            scores = displace(scores, self.engine.words.values, shift)
            coarse = self.faults.coarse((*job.prompt, *job.tokens), job.request)
            scores = displace(scores, self.engine.words.values, coarse)
            if self.faults.swaps(job.prompt, len(job.tokens), job.request):
                scores = swap_best(scores)
            token = choose(scores, job.settings, random)
            text = self._add(job, token, scores, ending)
            place = len(job.tokens) - 1
            yield Piece(text, [token], range(place, place + 1))
            if job.stop_type == "none":
                scores = self._slot.extend([token])
                await asyncio.sleep(0)
                job.predicted_seconds = time.perf_counter() - started

    def _add(self, job: Job, token: int, scores: Scores, ending: Ending) -> str:
        """Add an answer token, decide whether it was the last, and return the text it releases."""
        job.tokens.append(token)
        if job.settings.n_probs > 0:
            job.entries.append(self._entry(token, scores, job.settings.n_probs))
        text = ending.release(self.engine.words.tokens[token])
        full = len(job.prompt) + len(job.tokens) >= self.engine.context_tokens
        limit = max(1, job.settings.n_predict) if job.settings.n_predict >= 0 else None
        if ending.found:
            job.stop_type, job.stopping_word = "word", ending.found
        elif full or len(job.tokens) == limit:
            job.stop_type, job.truncated = "limit", full and len(job.tokens) != limit
            text += ending.held
        job.text += text
        return text

    def _entry(self, token: int, scores: Scores, count: int) -> dict[str, Any]:
        """One element of ``completion_probabilities``."""
        top = [self._scored(*pair) for pair in scores.top(count)]
        return self._scored(token, float(scores.logprobs[token])) | {"top_logprobs": top}

    def _scored(self, token: int, logprob: float) -> dict[str, Any]:
        return self._spellings[token] | {"logprob": logprob}

    @cached_property
    def _spellings(self) -> list[dict[str, Any]]:
        """Id, text and bytes of every token, as they are reported."""
        return [
            {"id": number, "token": text, "bytes": list(text.encode())}
            for number, text in enumerate(self.engine.words.tokens)
        ]


def _other(engine: ToyEngine) -> ToyEngine:
    """Another toy model; where the engine is no shipped one, the same under another name."""
    if engine.name.removeprefix("toy:") not in toy_names():
        return ToyEngine("another", engine.model, engine.words)
    return ToyEngine.load("w4s4" if engine.name == "toy:full" else "full")
