"""The toy models as a runtime in this process, and the engine that ``kvphase.serve`` shares.

Toy models are small transformers trained for demonstrations and tests. Everything that is
measured with one is marked as such by ``About.toy``.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import re
import time
from collections import OrderedDict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.runtimes.toy_model import ToyModel
from kvphase.types import About, Arm, Ask, Limits, Reply, Template
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "UNKNOWN",
    "Cache",
    "Model",
    "Scores",
    "ToyEngine",
    "ToyRuntime",
    "ToyWords",
    "toy_names",
]

UNKNOWN = 2**31 - 1
"""The id of a character that no toy token spells; no prompt that holds it is answered."""
CONTEXT_TOKENS = 4096
"""Prompt and answer tokens that fit, for a model whose settings do not say."""
KEPT_PREFIXES = 4
"""Prefixes whose caches are kept, the latest used ones."""
PREFILL_STEP = 256
"""Prompt tokens between two turns of the event loop: what an interrupt has to wait for."""


class Cache(Protocol):
    """A model's state after ``length`` tokens."""

    length: int

    def fork(self) -> Cache:
        """Return a cache that grows on its own."""
        ...


class Model(Protocol):
    """What the engine needs of a model; `ToyModel` is one."""

    config: dict[str, Any]
    vocab_size: int
    local_window: int

    def start(self) -> Any:  # noqa: ANN401 - each model has its own kind of cache
        """Return the cache of no tokens."""
        ...

    def extend(self, cache: Any, ids: Sequence[int]) -> NDArray[np.float32]:  # noqa: ANN401
        """Return the logits (len(ids), vocab) after each of ``ids``; the cache grows in place."""
        ...


class Scores:
    """Scores of the next token: before sampling, at temperature 1, over the full vocabulary."""

    def __init__(self, logits: NDArray[Any]) -> None:
        """Take the ``logits`` of one place, shape (vocab,)."""
        self._shifted = logits.astype(np.float64) - float(logits.max())

    @cached_property
    def logprobs(self) -> NDArray[np.float64]:
        """Natural log-probabilities, shape (vocab,)."""
        return np.asarray(self._shifted - np.log(np.exp(self._shifted).sum()))

    @property
    def best(self) -> int:
        """The most probable id, the lowest one of equals."""
        return int(self._shifted.argmax())

    @property
    def margin(self) -> float:
        """Log-probability of the best token minus that of the second."""
        second, best = np.partition(self._shifted, -2)[-2:]
        return float(best - second)

    def top(self, count: int) -> list[tuple[int, float]]:
        """The ``count`` most probable ids with their log-probabilities, best first."""
        order = np.argsort(-self._shifted, kind="stable")[:count]
        return [(int(token), float(self.logprobs[token])) for token in order]


class ToyWords:
    """The toy tokenizer: whole words, by the longest match from the left."""

    def __init__(self, vocab: dict[str, Any]) -> None:
        """Take the parsed vocabulary file."""
        self.tokens: list[str] = vocab["tokens"]
        ids = {text: number for number, text in enumerate(self.tokens)}
        self._ids = ids
        self.bos: int = ids[vocab["bos"]]
        self.values: tuple[int, ...] = tuple(ids[text] for text in vocab["values"])
        """Ids of the words that a record may hold as its value."""
        special = {vocab["bos"]}
        self._plain = self._pattern(set(ids) - special)
        self._special = self._pattern(set(ids))

    @classmethod
    def load(cls) -> ToyWords:
        """Read the vocabulary that ships with kvphase."""
        file = importlib.resources.files("kvphase.data") / "toys" / "vocab.json"
        return cls(json.loads(file.read_text(encoding="utf-8")))

    def pieces(self, text: str, *, special: bool = False) -> list[tuple[int, str]]:
        """Split ``text`` into (id, spelling); a character of no token has the id `UNKNOWN`.

        Args:
            text: What to tokenize; BOS is not added.
            special: Whether a spelled-out ``<s>`` stands for BOS.
        """
        found = (self._special if special else self._plain).findall(text)
        return [(self._ids.get(piece, UNKNOWN), piece) for piece in found]

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of ``text``, without BOS."""
        return [token for token, _ in self.pieces(text, special=special)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, BOS spelled out.

        Raises:
            UsageError: an id lies outside the vocabulary.
        """
        if ids and not 0 <= min(ids) <= max(ids) < len(self.tokens):
            raise UsageError(f"token ids must lie between 0 and {len(self.tokens) - 1}")
        return "".join(map(self.tokens.__getitem__, ids))

    @staticmethod
    def _pattern(texts: set[str]) -> re.Pattern[str]:
        """Match the longest of ``texts``, or else any one character."""
        longest_first = sorted(texts, key=len, reverse=True)
        return re.compile("|".join([*map(re.escape, longest_first), "."]), re.DOTALL)


def toy_names() -> list[str]:
    """Names of the toy models that ship with kvphase."""
    folder = importlib.resources.files("kvphase.data") / "toys"
    return sorted(
        file.name.removesuffix(".npz") for file in folder.iterdir() if file.name.endswith(".npz")
    )


class ToyEngine:
    """One toy model with its tokenizer, as the runtime and the server both use it."""

    def __init__(self, name: str, model: Model, words: ToyWords) -> None:
        """Join a model and its tokenizer under ``toy:name``."""
        self.name: str = f"toy:{name}"
        self.model = model
        self.words = words
        self.context_tokens: int = int(model.config.get("context_tokens", CONTEXT_TOKENS))
        self.parameters = 0
        self.file_bytes = 0

    @classmethod
    def load(cls, name: str) -> ToyEngine:
        """Load a model by its name, with or without ``toy:`` before it.

        Raises:
            UsageError: there is no such toy model, or its file is damaged.
        """
        name = name.removeprefix("toy:")
        names = toy_names()
        if name not in names:
            known = ", ".join(f"toy:{known}" for known in names) or "none"
            raise UsageError(message("runtime.no-toy", name=name, known=known))
        file = importlib.resources.files("kvphase.data") / "toys" / f"{name}.npz"
        try:
            with importlib.resources.as_file(file) as path:
                engine = cls(name, ToyModel.load(path), ToyWords.load())
                engine.file_bytes = path.stat().st_size
                with np.load(path) as arrays:
                    engine.parameters = sum(arrays[key].size for key in arrays if "." in key)
        except ValueError as error:
            raise UsageError(str(error)) from error
        return engine

    def check(self, prompt: Sequence[int], generate: int = 0) -> None:
        """Refuse a prompt that the model cannot take.

        Raises:
            UsageError: an id is unknown, nothing is asked, or the context is too short.
        """
        if not prompt:
            raise UsageError("the prompt is empty")
        index = self.first_unknown(prompt)
        if index is not None:
            raise UsageError(f"{self.name} does not know token {prompt[index]} (index {index})")
        if len(prompt) + generate > self.context_tokens:
            raise UsageError(
                f"a prompt of {len(prompt)} tokens and an answer of {generate} do not fit the "
                f"{self.context_tokens} tokens of {self.name}; the largest prompt that fits has "
                f"{self.context_tokens - generate}"
            )

    def first_unknown(self, prompt: Sequence[int]) -> int | None:
        """Index of the first id that the model does not know; None when it knows all."""
        size = self.model.vocab_size
        if not prompt or 0 <= min(prompt) <= max(prompt) < size:
            return None
        return next(index for index, token in enumerate(prompt) if not 0 <= token < size)

    def start(self) -> Cache:
        """Return the cache of no tokens."""
        cache: Cache = self.model.start()
        return cache

    def extend(self, cache: Cache, ids: Sequence[int]) -> Scores:
        """Process ``ids`` (at least one) and return the scores of the token after the last."""
        return Scores(self.model.extend(cache, ids)[-1])

    async def prefill(self, cache: Cache, ids: Sequence[int]) -> Scores:
        """Process ``ids`` (at least one), leaving the event loop its turns in between."""
        for first in range(0, len(ids), PREFILL_STEP):
            await asyncio.sleep(0)
            scores = self.extend(cache, ids[first : first + PREFILL_STEP])
        return scores

    def logprob(self, scores: Scores, text: str) -> float | None:
        """Log-probability of the token that ``text`` begins with; None if no token does."""
        ids = self.words.encode(text)
        if not ids or ids[0] == UNKNOWN:
            return None
        return float(scores.logprobs[ids[0]])


class ToyRuntime:
    """A toy model in this process, with a real prefix cache; greedy answers."""

    traffic: int = 0
    """Nobody else can use a model in this process."""
    lost_prefix: int = 0

    def __init__(self, engine: ToyEngine) -> None:
        """Use ``engine``; `load` finds one by name."""
        self._engine = engine
        self._prefixes: OrderedDict[tuple[int, ...], tuple[Cache, Scores]] = OrderedDict()
        self._filling = asyncio.Lock()
        self._threads: threadpool_limits | None = None

    @classmethod
    def load(cls, name: str) -> ToyRuntime:
        """Load a toy model by its name: ``w8s4``, ``full``.

        Raises:
            UsageError: there is no such toy model; the message names those there are.
        """
        return cls(ToyEngine.load(name))

    @property
    def about(self) -> About:
        """What the model is; always marked as a toy."""
        name = self._engine.name
        build = f"kvphase {__version__}"
        return About(
            target=name, runtime="toy", build=build, model=name, toy=True, extra=self._facts()
        )

    def _facts(self) -> dict[str, str]:
        """What is known about the model itself."""
        compressor = self._engine.model.config.get("compressor")
        if compressor is None:
            return {}
        sizes = (
            f"{name} {compressor[name]}" for name in ("window", "stride") if name in compressor
        )
        return {
            "compression": ", ".join(sizes) or "none: full attention",
            "parameters": f"{self._engine.parameters:,}",
        }

    @property
    def limits(self) -> Limits:
        """All scores, true cache counts, and a context as long as the model's settings say."""
        model = self._engine.model
        return Limits(
            context_tokens=self._engine.context_tokens,
            top_logprobs=model.vocab_size,
            local_window=model.local_window,
            bos=(self._engine.words.bos,),
            controls=frozenset({Arm.SPLIT, Arm.DECODE}),
        )

    async def __aenter__(self) -> ToyRuntime:
        """Let one thread do the arithmetic: a toy's matrices are too small to share out."""
        self._threads = threadpool_limits(limits=1, user_api="blas")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give the threads back and let go of the kept prefixes."""
        if self._threads is not None:
            self._threads.restore_original_limits()
        self._prefixes.clear()

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; what the tokenizer cannot spell is `UNKNOWN`."""
        return [self._engine.words.encode(text, special=special) for text in texts]

    async def template(self) -> Template:
        """Toys have no chat template.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{self._engine.name} has no chat template; toys answer plain prompts")

    async def complete(self, ask: Ask) -> Reply:
        """Answer one ask; `Arm.COLD` neither reads nor fills the prefix cache.

        `Arm.ALONE` is a screen ask here: nothing else ever runs.

        Raises:
            UsageError: the prompt holds an unknown id or does not fit the context.
        """
        started = time.perf_counter()
        self._engine.check(ask.prompt, ask.generate)
        cache, scores, cached = await self._evaluate(ask)
        given = ""
        if ask.arm is Arm.DECODE and ask.generate > 1:
            given = self._generate(cache, scores, ask.generate - 1)
            suffix = (*ask.suffix, *self._engine.words.encode(given))
            ask = replace(ask, suffix=suffix, generate=1)
            cache, scores, cached = await self._evaluate(ask)
        text = given + self._generate(cache, scores, ask.generate)
        return Reply(
            text=text,
            logprob=self._engine.logprob(scores, ask.expected),
            against=self._against(scores, ask),
            margin=scores.margin,
            prefilled=len(ask.prompt) - cached,
            cached=cached,
            generated=ask.generate,
            seconds=time.perf_counter() - started,
        )

    def _against(self, scores: Scores, ask: Ask) -> float | None:
        """Log-probability of the tempting wrong answer, if the ask names one."""
        return self._engine.logprob(scores, ask.candidates[1]) if len(ask.candidates) > 1 else None

    async def _evaluate(self, ask: Ask) -> tuple[Cache, Scores, int]:
        """Evaluate the prompt; return its cache, the next token's scores and the tokens reused."""
        if ask.arm is Arm.COLD or not ask.prefix:
            cache = self._engine.start()
            return cache, await self._engine.prefill(cache, ask.prompt), 0
        if ask.arm is Arm.SPLIT:
            cache = self._engine.start()
            await self._engine.prefill(cache, ask.prompt[: ask.cut])
            return cache, await self._engine.prefill(cache, ask.prompt[ask.cut :]), 0
        kept, scores, cached = await self._prefix(ask.prefix)
        cache = kept.fork()
        if ask.suffix:
            scores = await self._engine.prefill(cache, ask.suffix)
        await asyncio.sleep(0)
        return cache, scores, cached

    async def _prefix(self, prefix: tuple[int, ...]) -> tuple[Cache, Scores, int]:
        """Find the prefix's cache or fill it; the last item is how many tokens were reused."""
        async with self._filling:  # asks at the same time must not each pay for the prefix
            if prefix in self._prefixes:
                self._prefixes.move_to_end(prefix)
                return *self._prefixes[prefix], len(prefix)
            cache = self._engine.start()
            scores = await self._engine.prefill(cache, prefix)
            self._prefixes[prefix] = cache, scores
            if len(self._prefixes) > KEPT_PREFIXES:
                self._prefixes.popitem(last=False)
            return cache, scores, 0

    def _generate(self, cache: Cache, scores: Scores, count: int) -> str:
        """Spell the ``count`` most probable next tokens, each given those before it."""
        ids: list[int] = []
        while len(ids) < count:
            if ids:
                scores = self._engine.extend(cache, ids[-1:])
            ids.append(scores.best)
        return self._engine.words.decode(ids)
