"""SGLang over its own ``/generate``: token ids in, scores of any ids out, cache counts.

KTransformers serves through SGLang and is one of these. Questions on one prefix find what earlier
ones left in pages of the cache; a cold question has a cache key of its own. The scores that matter
are asked for by id, so none is censored.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from kvphase.catalogue import message
from kvphase.errors import TransientFault
from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.http import post_stream
from kvphase.runtimes.llamacpp_wire import read
from kvphase.runtimes.openai import ANSWER_BYTES, ECHO_BYTES
from kvphase.runtimes.scores import Score, ranked, value
from kvphase.runtimes.served import ASSUMED_CONTEXT, Answer, Served
from kvphase.runtimes.server import Server
from kvphase.runtimes.words import PromptWords
from kvphase.types import Limits

if TYPE_CHECKING:
    from kvphase.types import Ask

__all__ = ["ADAPTER", "SGLang"]

SCORES = 20
ABREAST = 16
"""Questions under way at once, at most: they are batched."""


class _Meta(BaseModel):
    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int | None = None
    finish_reason: dict[str, Any] | None = None
    output_top_logprobs: list[list[list[Any]]] | None = None
    output_token_ids_logprobs: list[list[list[Any]]] | None = None


class _Generated(BaseModel):
    text: str
    meta_info: _Meta


class SGLang(Served):
    """An SGLang server."""

    called: ClassVar[str] = "SGLang"
    able: ClassVar[Limits] = Limits(ASSUMED_CONTEXT, top_logprobs=SCORES, concurrency=ABREAST)

    grain: ClassVar[int] = 256
    """The largest page: DeepSeek-V4's."""
    path: str | None = None
    """Of the model that was loaded when the server was opened."""

    async def request(self, ask: Ask, *, salt: str | None = None) -> Answer:
        """As `Served.request`."""
        body: dict[str, Any] = {
            "input_ids": list(ask.prompt),
            "sampling_params": {
                "max_new_tokens": ask.generate,
                "temperature": 0,
                "top_p": 1,
                "top_k": 1,
                "min_p": 0,
                "repetition_penalty": 1,
                "frequency_penalty": 0,
                "presence_penalty": 0,
            },
            "return_logprob": True,
            "top_logprobs_num": SCORES,
        }
        first = [ids[0] for text in ask.candidates if (ids := await self._scorer.ids(text))]
        if first:
            body["token_ids_logprob"] = first
        if salt is not None:
            body["extra_key"] = salt
        most = ANSWER_BYTES + ECHO_BYTES * len(ask.prompt)
        async with aclosing(post_stream(self.client, "generate", body, most)) as events:
            seen = [read(_Generated, event) async for event in events]
        if not seen:
            raise TransientFault(message("runtime.stops-early"))
        last, meta = seen[-1], seen[-1].meta_info
        reason = (meta.finish_reason or {}).get("type")
        return Answer(
            text=last.text,
            finished=reason in ("stop", "length"),
            scores=_scores(meta),
            prompt_tokens=meta.prompt_tokens,
            cached=meta.cached_tokens,
            generated=meta.completion_tokens,
        )

    async def identity(self) -> str | None:
        """The model that is loaded now; SGLang's answers do not name it."""
        path = await _path(Server(self.client))
        return self.model if path in (None, self.path) else path


def _scores(meta: _Meta) -> tuple[Score, ...]:
    """Of the first answer token: the best ones, and those that were asked for by id."""
    found: dict[int, Score] = {}
    for listed in (meta.output_top_logprobs, meta.output_token_ids_logprobs):
        for entry in (listed or [[]])[0]:
            if len(entry) > 1 and isinstance(entry[1], int):
                found.setdefault(entry[1], Score("", value(entry[0]), entry[1]))
    return ranked(list(found.values()))


async def _path(server: Server) -> str | None:
    for name in ("model_info", "get_model_info"):
        path = (await server.page(name)).get("model_path")
        if isinstance(path, str):
            return path
    return None


async def recognises(server: Server) -> bool:
    """Whether the server's list of models says that SGLang owns them, or it shows SGLang's page."""
    owners = [card.owner for card in await server.cards()]
    return "sglang" in owners or await _path(server) is not None


async def connect(server: Server, choice: Choice) -> SGLang:
    """Open it.

    Raises:
        UsageError: a model must be named.
        RuntimeFault: it does not answer as SGLang does.
    """
    card = await server.pick(choice)
    words = choice.words() or await PromptWords.connect(server.client, card.id)
    facts = await server.page("server_info") or await server.page("get_server_info")
    version, context = facts.get("version"), card.context or facts.get("context_length")
    runtime = SGLang.of(
        server,
        words,
        card.id,
        context=context if isinstance(context, int) else None,
        build=version if isinstance(version, str) else None,
    )
    runtime.path = await _path(server)
    await runtime.try_cache()
    return runtime


ADAPTER = Adapter(recognises, connect)
