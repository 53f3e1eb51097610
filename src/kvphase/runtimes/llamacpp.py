"""llama.cpp's ``llama-server`` over HTTP: token ids in, scores and cache counts out.

A prefix that many asks share is prefilled once, together with exactly four more tokens. Models
whose cache cannot be cut back at will (sliding-window attention, compressed KV) return to a
checkpoint instead, and the server makes one four tokens before the end of a prompt. Every later
question then evaluates its own few tokens, which the server's figures show.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes import llamacpp_wire as wire
from kvphase.runtimes.http import (
    ANSWER_SECONDS,
    AT_ONCE,
    Unreachable,
    get_json,
    post_json,
    post_stream,
    said,
)
from kvphase.runtimes.llamacpp_slots import Watch
from kvphase.types import About, Arm, Limits, Reply, Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from kvphase.types import Ask

SCORES = 20
"""Next tokens whose log-probabilities are asked for."""
WARM_TOKENS = 4
"""Tokens behind the prefix when it is prefilled: where the server puts its checkpoint."""
SHORT_TOKENS = 512
"""A prompt without a shared prefix is asked like a question up to this length."""
ANSWER_BYTES = 4 * 2**20
"""Longest answer that is read: one to a few tokens with their scores."""
ECHO_BYTES = 64
"""More for each token of the prompt, which the server repeats as text."""
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

    lost_prefix: int = 0
    """Questions that found less of their prefix in the cache than was put there."""

    def __init__(
        self, client: httpx2.AsyncClient, props: wire.Props, bos: tuple[int, ...], watch: Watch
    ) -> None:
        self._client = client
        self._props = props
        self._about = wire.about(client.base_url, props)
        self._limits = Limits(
            context_tokens=props.default_generation_settings.n_ctx,
            top_logprobs=SCORES,
            local_window=props.kvphase.local_window,
            bos=bos,
        )
        self._watch = watch
        self._warm: tuple[int, ...] | None = None
        self._keeps = False  # a question has found its whole prefix in the cache
        self._owed = 0  # tokens of warm-ups that no reply has counted yet
        self._single: dict[str, bool] = {}
        self._turn = asyncio.Lock()
        self._places = asyncio.Semaphore(AT_ONCE)

    @classmethod
    async def connect(cls, client: httpx2.AsyncClient, *, exclusive: bool = False) -> LlamaCpp:
        """Ask the server behind ``client`` for its model, its BOS and its slots.

        Args:
            client: Of the server.
            exclusive: Nobody else uses it; see `kvphase.runtimes.detect.open_runtime`.

        Raises:
            RuntimeFault: it does not answer as a llama-server with one model does.
        """
        props = wire.read(wire.Props, await get_json(client, "props"))
        body = {"content": "", "add_special": True}
        bos = wire.read(wire.Tokens, await post_json(client, "tokenize", body)).tokens
        watch = Watch(client, tells=props.endpoint_slots)
        await watch.start(props.total_slots, exclusive=exclusive)
        return cls(client, props, tuple(bos), watch)

    @property
    def about(self) -> About:
        """What the server says it is."""
        return self._about

    @property
    def limits(self) -> Limits:
        """What the server can do; the context is one slot's."""
        return self._limits

    @property
    def traffic(self) -> int | None:
        """How often somebody else was seen at work; None where the server does not tell."""
        return self._watch.traffic

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
            raise RuntimeFault(said(fault)) from fault
        except RuntimeFault as fault:
            raise UsageError(message("runtime.no-template", fault=said(fault))) from fault
        head, *rest = wire.read(wire.Prompt, answer).prompt.split(MARKER)
        if len(rest) != 1:
            raise UsageError(message("runtime.odd-template"))
        head_text = head.removeprefix(self._props.bos_token) if self._limits.bos else head
        head_ids, tail_ids = await self.tokenize([head_text, rest[0]], special=True)
        digest = hashlib.sha256(f"{head_text}\0{rest[0]}".encode()).hexdigest()[:16]
        self._about = replace(self._about, template=digest)
        return Template(tuple(head_ids), tuple(tail_ids), head_text, rest[0], digest)

    async def render(self, body: dict[str, Any]) -> str:
        """A request as the text that the model reads, BOS left out; thinking off unless it says so.

        Args:
            body: ``messages`` and what else moves positions: tools, template settings.

        Raises:
            UsageError: the server has no template, or it refuses these messages.
        """
        settings = {"enable_thinking": False, **body.get("chat_template_kwargs", {})}
        try:
            answer = await post_json(
                self._client, "apply-template", {**body, "chat_template_kwargs": settings}
            )
        except TransientFault as fault:
            raise RuntimeFault(said(fault)) from fault
        except RuntimeFault as fault:
            raise UsageError(message("runtime.no-template", fault=said(fault))) from fault
        text = wire.read(wire.Prompt, answer).prompt
        self._about = replace(self._about, template="request")
        return text.removeprefix(self._props.bos_token) if self._limits.bos else text

    async def complete(self, ask: Ask) -> Reply:
        """Answer one ask; a new prefix is prefilled first, at its first ask's expense.

        `Reply.prefilled` of that first ask counts the tokens of both requests; `Reply.cached`
        those that the question itself found in the cache. `Arm.ALONE` waits a while for others
        to finish.

        Raises:
            TransientFault: a question on a prefix that is cached failed, or a short prompt.
            RuntimeFault: a prefill failed, or the server evaluated another prompt than was sent.
        """
        async with self._turn:
            await (self._watch.quiet() if ask.arm is Arm.ALONE else self._watch.now_and_then())
            started = time.perf_counter()
            answer = await self._answer(ask)
            seconds = time.perf_counter() - started
            warmed, self._owed = self._owed, 0
        timings = answer.last.timings
        expected, against = await self._scores(ask, answer.scores)
        return Reply(
            text=answer.text,
            logprob=expected,
            against=against,
            margin=wire.margin(answer.scores),
            finished=answer.last.stop_type != "none",
            prefilled=None if timings.prompt_n is None else timings.prompt_n + warmed,
            cached=timings.cache_n,
            generated=answer.last.tokens_predicted,
            seconds=seconds,
        )

    async def _answer(self, ask: Ask) -> wire.Answer:
        if not ask.prefix or ask.arm is Arm.COLD:
            return await self._whole(ask)
        await self._warm_up(ask)
        return await self._question(ask)

    async def _whole(self, ask: Ask) -> wire.Answer:
        """The whole prompt, nothing read from the cache; in the spare slot if there is one."""
        # Even in another slot: some servers move idle slots out of the way. Should the prefix
        # still be there, warming it again evaluates four tokens.
        self._warm = None
        options = {
            "n_predict": ask.generate,
            "cache_prompt": False,
            "id_slot": self._watch.places.spare,
        }
        if not ask.prefix and len(ask.suffix) <= SHORT_TOKENS:
            return await self._cheap(ask.prompt, **options)
        return await self._prefill(ask.prompt, **options)

    async def _warm_up(self, ask: Ask) -> None:
        """Prefill the ask's prefix unless it is there."""
        if ask.prefix == self._warm or not self._has_room(ask):
            return
        await self._watch.check()
        # The four tokens must not begin as the question does, or its first token would be cached.
        extra = next((t for t in reversed(ask.prefix) if t not in ask.suffix[:1]), ask.prefix[-1])
        self._warm = None
        answer = await self._prefill((*ask.prefix, *(extra,) * WARM_TOKENS), n_predict=0)
        self._warm = ask.prefix
        self._owed += answer.last.timings.prompt_n or 0

    def _has_room(self, ask: Ask) -> bool:
        """Whether the prefix can be warmed at all."""
        return len(ask.prefix) + WARM_TOKENS < self._limits.context_tokens

    async def _question(self, ask: Ask) -> wire.Answer:
        """The ask itself, cheap to repeat only if its prefix is known to be cached."""
        if ask.prefix != self._warm:
            answer = await self._prefill(ask.prompt, n_predict=ask.generate)
            self._warm = ask.prefix
            return answer
        try:
            answer = await self._cheap(ask.prompt, n_predict=ask.generate)
        except Unreachable:
            self._warm = None  # a server that went away comes back with an empty cache
            raise
        if self._has_room(ask):
            self._notice(ask, answer)
        return answer

    def _notice(self, ask: Ask, answer: wire.Answer) -> None:
        """See from the server's count whether it still had the prefix."""
        cached = answer.last.timings.cache_n
        if cached is None:
            return
        if cached >= len(ask.prefix):
            self._keeps = True
            return
        self.lost_prefix += 1
        if self._keeps:  # it can keep one, so somebody took the slot
            self._watch.seen += 1
            self._warm = None

    async def _scores(
        self, ask: Ask, scores: Sequence[wire.Score]
    ) -> tuple[float | None, float | None]:
        """Log-probability of the expected answer, and of the tempting wrong one if there is one."""
        tempting = ask.candidates[1] if len(ask.candidates) > 1 else None
        expected = await self._score(scores, ask.expected)
        return expected, None if tempting is None else await self._score(scores, tempting)

    async def _score(self, scores: Sequence[wire.Score], text: str) -> float | None:
        """Of ``text`` as the next token, -inf if it was censored; None without scores.

        A text of several tokens has the score of the token that it begins with, or none.
        """
        if not scores:
            return None
        found = wire.exact(scores, text)
        if found is not None:
            return found
        return -math.inf if await self._is_token(text) else wire.beginning(scores, text)

    async def _is_token(self, text: str) -> bool:
        """Whether the server spells ``text`` as one token; True if it does not say now."""
        if text not in self._single:
            try:
                self._single[text] = len(await self._tokens(text, special=False)) == 1
            except TransientFault:
                return True  # an answer that was paid for is not thrown away for this
        return self._single[text]

    async def _cheap(self, prompt: Sequence[int], **options: Any) -> wire.Answer:  # noqa: ANN401
        """A request that evaluates few tokens, so that it has a deadline and may be repeated."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._request(prompt, **options)
        except TimeoutError as error:
            seconds = round(ANSWER_SECONDS)
            raise TransientFault(message("runtime.slow-question", seconds=seconds)) from error

    async def _prefill(self, prompt: Sequence[int], **options: Any) -> wire.Answer:  # noqa: ANN401
        """A request that may take as long as it needs, and whose failure is final."""
        try:
            return await self._request(prompt, **options)
        except TransientFault as fault:
            raise RuntimeFault(
                message("runtime.prefill", fault=said(fault), tokens=len(prompt))
            ) from fault

    async def _request(self, prompt: Sequence[int], **options: Any) -> wire.Answer:  # noqa: ANN401
        body = {
            "prompt": list(prompt),
            "cache_prompt": True,
            "id_slot": self._watch.places.screen,
            "n_probs": SCORES,
            "return_tokens": True,
            "stream": True,
            **GREEDY,
            **options,
        }
        self._watch.settled = False
        most = ANSWER_BYTES + ECHO_BYTES * len(prompt)
        async with aclosing(post_stream(self._client, "completion", body, most)) as events:
            seen = [wire.read(wire.Event, event) async for event in events]
        self._watch.settled = True
        answer = wire.joined(seen)
        wire.check_count(answer.last, len(prompt))
        return answer
