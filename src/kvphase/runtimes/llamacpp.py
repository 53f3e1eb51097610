"""llama.cpp's ``llama-server`` over HTTP: token ids in, scores and cache counts out.

A prefix that many asks share is prefilled once, together with exactly four more tokens. Models
whose cache cannot be cut back at will (sliding-window attention, compressed KV) return to a
checkpoint instead, and the server makes one four tokens before the end of a prompt. Every later
question then evaluates its own few tokens, which the server's figures show.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes import llamacpp_wire as wire
from kvphase.runtimes.http import (
    ANSWER_SECONDS,
    AT_ONCE,
    Unreachable,
    get_json,
    post_json,
    post_stream,
)
from kvphase.types import About, Arm, Limits, Reply, Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from kvphase.types import Ask

SCORES = 20
"""Next tokens whose log-probabilities are asked for."""
WARM_TOKENS = 4
"""Tokens behind the prefix when it is prefilled: where the server puts its checkpoint."""
SLOT = 0
GREEDY = {
    "temperature": 0,
    "top_k": 1,
    "samplers": ["top_k"],  # no penalty or filter that the server was started with
    "mirostat": 0,
    "logit_bias": [],
    "stop": [],
    "ignore_eos": False,
    "post_sampling_probs": False,
}
MARKER = "kvphase7marker1here"
"""Stands for the user's text while the server renders its chat template."""


class LlamaCpp:
    """A llama-server; `connect` asks it what it is."""

    def __init__(self, client: httpx2.AsyncClient, props: wire.Props, bos: tuple[int, ...]) -> None:
        self._client = client
        self._props = props
        self._about = wire.about(client.base_url, props)
        self._limits = Limits(
            context_tokens=props.default_generation_settings.n_ctx,
            top_logprobs=SCORES,
            local_window=props.kvphase.local_window,
            bos=bos,
        )
        # A cold ask gets a slot of its own where there is one, so that the prefix stays cached.
        self._cold_slot = SLOT + 1 if props.total_slots > 1 else SLOT
        self._warm: tuple[int, ...] | None = None
        self._owed = 0  # tokens of warm-ups that no reply has counted yet
        self._turn = asyncio.Lock()
        self._places = asyncio.Semaphore(AT_ONCE)

    @classmethod
    async def connect(cls, client: httpx2.AsyncClient) -> LlamaCpp:
        """Ask the server behind ``client`` for its model and its BOS.

        Raises:
            RuntimeFault: it does not answer as a llama-server with one model does.
        """
        props = wire.read(wire.Props, await get_json(client, "props"))
        body = {"content": "", "add_special": True}
        bos = wire.read(wire.Tokens, await post_json(client, "tokenize", body)).tokens
        return cls(client, props, tuple(bos))

    @property
    def about(self) -> About:
        """What the server says it is."""
        return self._about

    @property
    def limits(self) -> Limits:
        """What the server can do; the context is one slot's."""
        return self._limits

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        return list(await asyncio.gather(*(self._tokens(text, special) for text in texts)))

    async def _tokens(self, text: str, special: bool) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": special}
        async with self._places:
            return wire.read(wire.Tokens, await post_json(self._client, "tokenize", body)).tokens

    async def template(self) -> Template:
        """The chat template around a user's text, thinking off, as the server renders it.

        Raises:
            UsageError: the server has none, or it changes the user's text.
        """
        body = {
            "messages": [{"role": "user", "content": MARKER}],
            "chat_template_kwargs": {"enable_thinking": False},
        }
        try:
            answer = await post_json(self._client, "apply-template", body)
        except TransientFault as fault:
            raise RuntimeFault(str(fault)) from fault
        except RuntimeFault as fault:
            raise UsageError(f"the server has no chat template to apply: {fault}") from fault
        head, *rest = wire.read(wire.Prompt, answer).prompt.split(MARKER)
        if len(rest) != 1:
            raise UsageError("the server's chat template does not show the user's text just once")
        head_text = head.removeprefix(self._props.bos_token) if self._limits.bos else head
        head_ids, tail_ids = await self.tokenize([head_text, rest[0]], special=True)
        digest = hashlib.sha256(f"{head_text}\0{rest[0]}".encode()).hexdigest()[:16]
        self._about = replace(self._about, template=digest)
        return Template(tuple(head_ids), tuple(tail_ids), head_text, rest[0], digest)

    async def complete(self, ask: Ask) -> Reply:
        """Answer one ask; a new prefix is prefilled first, at its first ask's expense.

        `Reply.prefilled` of that first ask counts the tokens of both requests; `Reply.cached`
        those that the question itself found in the cache.

        Raises:
            TransientFault: a question on a prefix that is cached failed.
            RuntimeFault: a prefill failed, or the server evaluated another prompt than was sent.
        """
        started = time.perf_counter()
        async with self._turn:
            if ask.arm is Arm.COLD:
                answer = await self._cold(ask)
            else:
                await self._warm_up(ask)
                answer = await self._question(ask)
            warmed, self._owed = self._owed, 0
        timings = answer.last.timings
        return Reply(
            text=answer.text,
            logprob=wire.logprob(answer.scores, ask.expected),
            margin=wire.margin(answer.scores),
            finished=answer.last.stop_type != "none",
            prefilled=None if timings.prompt_n is None else timings.prompt_n + warmed,
            cached=timings.cache_n,
            generated=answer.last.tokens_predicted,
            seconds=time.perf_counter() - started,
        )

    async def _cold(self, ask: Ask) -> wire.Answer:
        """A prefill of the whole prompt that reads nothing from the cache."""
        if self._cold_slot == SLOT:
            self._warm = None
        return await self._prefill(
            ask.prompt, n_predict=ask.generate, cache_prompt=False, id_slot=self._cold_slot
        )

    async def _warm_up(self, ask: Ask) -> None:
        """Prefill the ask's prefix unless it is there."""
        size = len(ask.prefix) + WARM_TOKENS
        if ask.prefix in ((), self._warm) or size >= self._limits.context_tokens:
            return
        # The four tokens must not begin as the question does, or its first token would be cached.
        extra = next((t for t in reversed(ask.prefix) if t not in ask.suffix[:1]), ask.prefix[-1])
        self._warm = None
        answer = await self._prefill((*ask.prefix, *(extra,) * WARM_TOKENS), n_predict=0)
        self._warm = ask.prefix
        self._owed += answer.last.timings.prompt_n or 0

    async def _question(self, ask: Ask) -> wire.Answer:
        """The ask itself, cheap to repeat only if its prefix is known to be cached."""
        if not ask.prefix or ask.prefix != self._warm:
            answer = await self._prefill(ask.prompt, n_predict=ask.generate)
            self._warm = ask.prefix
            return answer
        try:
            return await self._request(ask.prompt, ANSWER_SECONDS, n_predict=ask.generate)
        except Unreachable:
            self._warm = None  # a server that went away comes back with an empty cache
            raise

    async def _prefill(self, prompt: Sequence[int], **options: Any) -> wire.Answer:  # noqa: ANN401
        """A request that may take as long as it needs, and whose failure is final."""
        try:
            return await self._request(prompt, None, **options)
        except TransientFault as fault:
            raise RuntimeFault(
                f"{fault} (while a prompt of {len(prompt)} tokens was prefilled)"
            ) from fault

    async def _request(
        self,
        prompt: Sequence[int],
        silence: float | None,
        **options: Any,  # noqa: ANN401
    ) -> wire.Answer:
        body = {
            "prompt": list(prompt),
            "cache_prompt": True,
            "id_slot": SLOT,
            "n_probs": SCORES,
            "return_tokens": True,
            "stream": True,
            **GREEDY,
            **options,
        }
        events = post_stream(self._client, "completion", body, silence)
        async with aclosing(events):
            seen = [wire.read(wire.Event, event) async for event in events]
        answer = wire.joined(seen)
        wire.check_count(answer.last, len(prompt))
        return answer
