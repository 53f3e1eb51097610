"""Ollama over its own ``/api/generate``: plain text in, the model's own vocabulary beside it.

Ollama shows no tokenizer, but the whole vocabulary (``/api/show``, verbose), from which the same
tokenizer is built here; what it cannot be built from is asked for with ``--tokenizer``. Prompts go
``raw``, without a template. Only a model that is loaded already is measured, with the context that
it was loaded with: asking for another would load it, another ``num_ctx`` would load it anew.

A prompt that is too long is cut without a word; the count of prompt tokens shows it. That count
adds hits and misses, so what came from the cache is told by time.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from kvphase.catalogue import message
from kvphase.errors import TransientFault, UsageError
from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.http import post_json, post_stream
from kvphase.runtimes.llamacpp_wire import read
from kvphase.runtimes.openai import ANSWER_BYTES
from kvphase.runtimes.scores import Score, ranked, value
from kvphase.runtimes.served import ASSUMED_CONTEXT, TRIAL, Answer, Served, trial
from kvphase.runtimes.server import Server, listed, shown_model
from kvphase.runtimes.words import LocalWords
from kvphase.tokens.local import from_metadata
from kvphase.types import Limits

if TYPE_CHECKING:
    from kvphase.runtimes.words import Words
    from kvphase.types import Ask

__all__ = ["ADAPTER", "Ollama"]

SCORES = 20


class _Loaded(BaseModel):
    """A model in memory."""

    model: str
    context_length: int | None = None
    details: dict[str, Any] = {}


class _Running(BaseModel):
    models: list[_Loaded] = []


class _Entry(BaseModel):
    token: str = ""
    logprob: float | None = None
    top_logprobs: list[_Entry] = []


class _Generated(BaseModel):
    model: str | None = None
    response: str = ""
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int = 0
    logprobs: list[_Entry] | None = None


class Ollama(Served):
    """A model that Ollama has loaded."""

    called: ClassVar[str] = "Ollama"
    able: ClassVar[Limits] = Limits(
        ASSUMED_CONTEXT, ids=False, top_logprobs=SCORES, cache_report=False, cold=False
    )

    async def request(self, ask: Ask, *, salt: str | None = None) -> Answer:
        """As `Served.request`; a salt is not known to this API."""
        del salt
        text = await self.words.text_of(ask.prompt[len(self._limits.bos) :])
        body = {
            "model": self.model,
            "prompt": text,
            "raw": True,
            "stream": False,
            "logprobs": True,
            "top_logprobs": SCORES,
            "options": {
                "num_predict": ask.generate,
                "temperature": 0,
                "top_k": 1,
                "repeat_penalty": 1,
                "presence_penalty": 0,
                "frequency_penalty": 0,
                "stop": [],
            },
        }
        async with aclosing(post_stream(self.client, "api/generate", body, ANSWER_BYTES)) as events:
            *_, last = [read(_Generated, event) async for event in events]
        if not last.done:
            raise TransientFault(message("runtime.stops-early"))
        return Answer(
            text=last.response,
            finished=last.done_reason in ("stop", "length", None),
            scores=_scores(last.logprobs),
            prompt_tokens=last.prompt_eval_count,
            generated=last.eval_count,
            model=last.model,
        )

    async def identity(self) -> str | None:
        """The model that is loaded now; None if none is."""
        names = [one.model for one in await _running(Server(self.client))]
        return self.model if self.model in names else next(iter(names), None)


def _scores(entries: list[_Entry] | None) -> tuple[Score, ...]:
    """Of the first answer token, best first."""
    rivals = entries[0].top_logprobs if entries else []
    return ranked([Score(one.token, value(one.logprob)) for one in rivals])


async def _running(server: Server) -> list[_Loaded]:
    return read(_Running, await server.page("api/ps")).models


async def recognises(server: Server) -> bool:
    """Whether the server tells its version and what it runs, as Ollama alone does."""
    version = (await server.page("api/version")).get("version")
    return isinstance(version, str) and isinstance(
        (await server.page("api/ps")).get("models"), list
    )


async def connect(server: Server, choice: Choice) -> Ollama:
    """Open it.

    Raises:
        UsageError: nothing is loaded, a model must be named, or its vocabulary is of a kind that
            is not understood and no tokenizer was named.
        RuntimeFault: it does not answer as Ollama does.
    """
    loaded = _picked(await _running(server), choice)
    body = {"model": loaded.model, "verbose": True}
    info = (await post_json(server.client, "api/show", body)).get("model_info") or {}
    words: Words = choice.words() or LocalWords(
        from_metadata(info, source=message("tokenizer.vocabulary"))
    )
    version = (await server.page("api/version")).get("version")
    quant = loaded.details.get("quantization_level")
    runtime = Ollama.of(
        server,
        words,
        loaded.model,
        context=loaded.context_length,
        build=str(version),
        quant=quant if isinstance(quant, str) else None,
    )
    asked = trial((*words.bos, *(await runtime.tokenize([TRIAL]))[0]))
    runtime.check(asked, await runtime.in_time(asked))
    return runtime


def _picked(running: list[_Loaded], choice: Choice) -> _Loaded:
    """The loaded model that was named, or the only one."""
    names = [shown_model(one.model) for one in running]
    wanted = [one for one in running if choice.model in (None, one.model, shown_model(one.model))]
    wanted = wanted or [one for one in running if one.model == f"{choice.model}:latest"]
    if len(wanted) == 1:
        return wanted[0]
    if not running or not wanted:
        raise UsageError(message("tokenizer.not-loaded", names=listed(names) or "-"))
    raise UsageError(message("runtime.many-models", n=len(names), names=listed(names)))


ADAPTER = Adapter(recognises, connect)
