"""A model saved by Hugging Face's ``transformers``, in this process: ``transformers:FOLDER``.

Each prompt is evaluated alone and never padded, so an array index is a position. A prefix that
many asks share is prefilled once, in one piece; each question goes on from a deep copy of its
cache. Whether a cache that goes on answers as a whole prompt does is tried on opening
(`kvphase.runtimes.transformers_model.cache_fault`); where it does not, whole prompts are evaluated
and ``kvphase info`` says so.

Torch uses as many threads as it does by default (``OMP_NUM_THREADS`` sets them), and the first GPU
where it sees one.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, UsageError
from kvphase.runtimes.toy import Scores
from kvphase.tokens import FileTokenizer
from kvphase.types import Arm, Limits, Reply, Template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from kvphase.runtimes.transformers_model import SavedModel
    from kvphase.types import About, Ask

__all__ = ["TransformersRuntime", "open_folder"]

KEPT_PREFIXES = 2
"""Prefixes whose caches are kept, the latest used ones."""
SPELLING = 8
"""Tokens of the prompt before a spelled answer: some decoders drop a text's first space."""
MARKER = "kvphase7marker1here"
"""Stands for the user's text while the chat template is rendered."""
THINKING_OFF = {"enable_thinking": False, "thinking": False}
"""What templates call it; one that knows neither ignores both."""


def open_folder(folder: str) -> AbstractAsyncContextManager[TransformersRuntime]:
    """Open a folder written by ``save_pretrained``: configuration, weights, ``tokenizer.json``.

    Nothing is downloaded, no code of the folder is run and no pickle is read.

    Args:
        folder: Where the model is saved.

    Raises:
        ImportError: torch or transformers is not installed.
        UsageError: on entering, if there is no such model there or it cannot be used.
    """
    import torch
    import transformers  # noqa: F401 - missing packages are told apart here, before anything runs

    del torch
    return _opened(Path(folder))


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[TransformersRuntime]:
    from kvphase.runtimes.transformers_model import load  # late: needs torch

    model = await asyncio.to_thread(load, folder)
    runtime = TransformersRuntime(model)
    try:
        yield runtime
    finally:
        runtime.forget()


class TransformersRuntime:
    """A causal language model in this process; greedy answers, all scores, true cache counts."""

    traffic: int = 0
    """Nobody else can use a model in this process."""
    lost_prefix: int = 0

    def __init__(self, model: SavedModel) -> None:
        """Use ``model``; `open_folder` finds one."""
        self._model = model
        self._about = model.about
        self._words = FileTokenizer.of(model.tokenizer.backend_tokenizer)
        self._prefixes: OrderedDict[tuple[int, ...], tuple[Any, Scores]] = OrderedDict()
        self._turn = asyncio.Lock()

    @property
    def about(self) -> About:
        """What the model is: its class, its size, a digest of its weights; no path."""
        return self._about

    @property
    def limits(self) -> Limits:
        """All scores, true cache counts, and the context of the model's own configuration."""
        return Limits(
            context_tokens=self._model.context_tokens,
            top_logprobs=self._model.vocab_size,
            local_window=self._model.local_window,
            bos=self._words.bos,
        )

    def forget(self) -> None:
        """Let go of the kept prefixes."""
        self._prefixes.clear()

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        return await self._words.tokenize(texts, special=special)

    async def template(self) -> Template:
        """The chat template around a user's text, thinking off.

        Raises:
            UsageError: there is none, or it changes the user's text.
        """
        head_text, *rest = self._render([{"role": "user", "content": MARKER}]).split(MARKER)
        if len(rest) != 1:
            raise UsageError(message("transformers.odd-template"))
        head, tail = await self.tokenize([head_text, rest[0]], special=True)
        digest = hashlib.sha256(f"{head_text}\0{rest[0]}".encode()).hexdigest()[:16]
        self._about = replace(self._about, template=digest)
        return Template(tuple(head), tuple(tail), head_text, rest[0], digest)

    async def render(self, body: dict[str, Any]) -> str:
        """A request as the text that the model reads, BOS left out; thinking off unless it says so.

        Args:
            body: ``messages``, and ``tools`` and ``chat_template_kwargs`` if there are any.

        Raises:
            UsageError: there is no template, or it refuses these messages.
        """
        settings = {"tools": body.get("tools"), **body.get("chat_template_kwargs", {})}
        text = self._render(body["messages"], **settings)
        self._about = replace(self._about, template="request")
        return text

    def _render(self, messages: Any, **settings: Any) -> str:  # noqa: ANN401 - a request's own
        tokenizer = self._model.tokenizer
        if not tokenizer.chat_template:
            raise UsageError(message("transformers.no-template"))
        options = {"tokenize": False, "add_generation_prompt": True, **THINKING_OFF, **settings}
        try:
            text: str = tokenizer.apply_chat_template(messages, **options)
        except Exception as error:  # a template is a program and raises what it likes
            raise UsageError(message("transformers.template-refuses", why=str(error))) from error
        return text.removeprefix(tokenizer.bos_token or "") if self._words.bos else text

    async def complete(self, ask: Ask) -> Reply:
        """Answer one ask; `Arm.COLD` neither reads nor fills the prefix cache.

        Raises:
            UsageError: the prompt holds an unknown id or does not fit the context.
            RuntimeFault: the model gives scores that are no numbers, or memory runs out.
        """
        self._check(ask)
        async with self._turn:  # one prompt at a time: a batch would need padding
            started = time.perf_counter()
            scores, ids, cached = await asyncio.to_thread(self._answer, ask)
            seconds = time.perf_counter() - started
        tempting = ask.candidates[1] if len(ask.candidates) > 1 else None
        return Reply(
            text=self._spell(ask.prompt, ids),
            logprob=await self._logprob(scores, ask, ask.expected),
            against=None if tempting is None else await self._logprob(scores, ask, tempting),
            margin=scores.margin,
            prefilled=len(ask.prompt) - cached,
            cached=cached,
            generated=len(ids),
            seconds=seconds,
        )

    def _check(self, ask: Ask) -> None:
        prompt, size, most = ask.prompt, self._model.vocab_size, self._model.context_tokens
        odd = next((token for token in prompt if not 0 <= token < size), None)
        if odd is not None or not prompt:
            raise UsageError(message("transformers.unknown-id", id=odd, size=size))
        if len(prompt) + ask.generate > most:
            raise UsageError(
                message("transformers.too-long", n=len(prompt), answer=ask.generate, most=most)
            )

    def _answer(self, ask: Ask) -> tuple[Scores, list[int], int]:
        """The next token's scores, the answer's ids, and how many prompt tokens were reused."""
        scores, cache, cached = self._evaluate(ask)
        first, ids = scores, [scores.best]
        while len(ids) < ask.generate and ids[-1] not in self._model.stops:
            if cache is None:
                scores, cache = self._extend(None, (*ask.prompt, *ids))
            else:
                scores, cache = self._extend(cache, ids[-1:])
            ids.append(scores.best)
        return first, ids[: ask.generate], cached

    def _evaluate(self, ask: Ask) -> tuple[Scores, Any, int]:
        """Scores after the prompt, its cache (None: none can be gone on from), tokens reused."""
        if ask.arm is Arm.COLD or not ask.prefix or not self._model.keeps:
            return *self._extend(None, ask.prompt), 0
        cached = len(ask.prefix) if ask.prefix in self._prefixes else 0
        if not cached:
            scores, cache = self._extend(None, ask.prefix)
            self._prefixes[ask.prefix] = cache, scores
            if len(self._prefixes) > KEPT_PREFIXES:
                self._prefixes.popitem(last=False)
        self._prefixes.move_to_end(ask.prefix)
        kept, scores = self._prefixes[ask.prefix]
        cache = copy.deepcopy(kept)
        if ask.suffix:
            scores, cache = self._extend(cache, ask.suffix)
        return scores, cache, cached

    def _extend(self, cache: Any, ids: Sequence[int]) -> tuple[Scores, Any]:  # noqa: ANN401
        """Evaluate ``ids`` behind ``cache`` (which grows); the scores after the last of them."""
        try:
            logits, cache = self._model.extend(cache, ids)
        except RuntimeError as error:  # torch's, of memory above all
            why = str(error).strip().splitlines()[0]
            raise RuntimeFault(message("transformers.failed", n=len(ids), why=why)) from error
        last = logits[-1]
        if not last.max() < float("inf"):  # false for what is no number, too
            raise RuntimeFault(message("transformers.no-numbers"))
        return Scores(last), cache

    def _spell(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """The text of ``ids`` behind ``prompt``, without what ends an answer."""
        tokenizer = self._model.tokenizer.backend_tokenizer
        ids = [token for token in ids if token not in self._model.stops]
        before = list(prompt[-SPELLING:])
        start: str = tokenizer.decode(before, skip_special_tokens=False)
        whole: str = tokenizer.decode([*before, *ids], skip_special_tokens=False)
        if whole.startswith(start):
            return whole[len(start) :]
        alone: str = tokenizer.decode(ids, skip_special_tokens=False)
        return alone

    async def _logprob(self, scores: Scores, ask: Ask, text: str) -> float | None:
        """Log-probability of the token that ``text`` begins with; None if no token does.

        Tokenizers that put a space before every text are given it without its own.
        """
        for ids in await self.tokenize([text, text.removeprefix(" ")]):
            spelled = self._spell(ask.prompt, ids[:1])
            if spelled and (text.startswith(spelled) or "\ufffd" in spelled):
                return float(scores.logprobs[ids[0]])
        return None
