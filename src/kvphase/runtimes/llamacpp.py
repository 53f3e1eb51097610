"""llama.cpp's ``llama-server`` over HTTP: token ids in, scores and cache counts out.

A prefix that many asks share is prefilled once, together with exactly four more tokens. Models
whose cache cannot be cut back at will (sliding-window attention, compressed KV) return to a
checkpoint instead, and the server makes one four tokens before the end of a prompt. Every later
question then evaluates its own few tokens, which the server's figures show.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes import llamacpp_wire as wire
from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.http import ANSWER_SECONDS, Unreachable, get_json, post_stream, said
from kvphase.runtimes.llamacpp_slots import Places, Watch
from kvphase.runtimes.llamacpp_words import ContentWords
from kvphase.runtimes.scores import Scorer, margin
from kvphase.runtimes.server import shown_model
from kvphase.types import Arm, Limits, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from kvphase.runtimes.server import Server
    from kvphase.types import About, Ask, Template

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
COMPANY_PROMPT, COMPANY_TOKENS = 64, 16
"""Prompt and answer tokens of a request that is sent to keep a question company."""


def controls(places: Places) -> frozenset[Arm]:
    """What can be asked for: company only where another slot is free for it."""
    alone = {Arm.SPLIT, Arm.DECODE, Arm.SAMPLED}
    return frozenset(alone | {Arm.TOGETHER} if places.spare != places.screen else alone)


class LlamaCpp:
    """A llama-server; `connect` asks it what it is."""

    lost_prefix: int = 0
    """Questions that found less of their prefix in the cache than was put there."""

    def __init__(
        self, client: httpx2.AsyncClient, props: wire.Props, words: ContentWords, watch: Watch
    ) -> None:
        self._client = client
        self._words = words
        self._about = wire.about(client.base_url, props)
        self._limits = Limits(
            context_tokens=props.default_generation_settings.n_ctx,
            top_logprobs=SCORES,
            local_window=props.kvphase.local_window,
            bos=words.bos,
            controls=controls(watch.places),
        )
        self._watch = watch
        self._warm: tuple[int, ...] | None = None
        self._grown = False  # the slot may hold a prompt that was put there in pieces
        self._keeps = False  # a question has found its whole prefix in the cache
        self._owed = 0  # tokens of warm-ups that no reply has counted yet
        self._scorer = Scorer(self.tokenize)
        self._doubtful = False  # the server may have been started again, with another model
        self._turn = asyncio.Lock()

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
        words = await ContentWords.connect(client, props.bos_token)
        watch = Watch(client, tells=props.endpoint_slots)
        await watch.start(props.total_slots, exclusive=exclusive)
        return cls(client, props, words, watch)

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
        return await self._words.tokenize(texts, special=special)

    async def template(self) -> Template:
        """The chat template around a user's text, thinking off, as the server renders it.

        Raises:
            UsageError: the server has none, or it changes the user's text.
        """
        template = await self._words.template()
        self._about = replace(self._about, template=template.digest)
        return template

    async def render(self, body: dict[str, Any]) -> str:
        """A request as the text that the model reads; see `ContentWords.render`."""
        text = await self._words.render(body)
        self._about = replace(self._about, template="request")
        return text

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
            await self._same_model()
            await (self._watch.quiet() if ask.arm is Arm.ALONE else self._watch.now_and_then())
            started = time.perf_counter()
            answer = await self._answer(ask)
            seconds = time.perf_counter() - started
            warmed, self._owed = self._owed, 0
        timings = answer.last.timings
        expected, against = await self._scorer.of(ask, answer.scores)
        return Reply(
            text=answer.text,
            logprob=expected,
            against=against,
            margin=margin(answer.scores),
            finished=answer.last.stop_type != "none",
            prefilled=None if timings.prompt_n is None else timings.prompt_n + warmed,
            cached=timings.cache_n,
            generated=answer.last.tokens_predicted,
            seconds=seconds,
        )

    async def _same_model(self) -> None:
        """After a lost connection or a lost prefix: the server must serve the model it served."""
        if not self._doubtful:
            return
        props = wire.read(wire.Props, await get_json(self._client, "props"))
        now, before = wire.about(self._client.base_url, props).model, self._about.model
        if now != before:
            name, was = shown_model(now or ""), shown_model(before or "")
            raise RuntimeFault(message("runtime.other-model", name=name, before=was))
        self._doubtful = False

    async def _answer(self, ask: Ask) -> wire.Answer:
        if ask.arm is Arm.DECODE and ask.generate > 1:
            return await self._given(ask)
        if not ask.prefix or ask.arm is Arm.COLD:
            return await self._whole(ask)
        if ask.arm is Arm.SPLIT:
            return await self._in_pieces(ask)
        await self._warm_up(ask)
        return await (self._beside(ask) if ask.arm is Arm.TOGETHER else self._question(ask))

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
        self._warm = None
        answer = await self._prefill(_warming(ask), n_predict=0, cache_prompt=not self._grown)
        self._warm, self._grown = ask.prefix, False
        self._owed += answer.last.timings.prompt_n or 0

    async def _in_pieces(self, ask: Ask) -> wire.Answer:
        """The prompt in two pieces, the first of them evaluated from nothing."""
        self._warm, self._grown = None, True
        first = await self._prefill(ask.prompt[: ask.cut], n_predict=0, cache_prompt=False)
        self._owed += first.last.timings.prompt_n or 0
        return await self._prefill(ask.prompt, n_predict=ask.generate)

    async def _given(self, ask: Ask) -> wire.Answer:
        """All answer tokens but the last are generated, thrown out of the cache, and given."""
        first = await self._answer(replace(ask, arm=Arm.SCREEN, generate=ask.generate - 1))
        if len(first.tokens) < ask.generate - 1:
            return first  # it ended there by itself
        if ask.prefix:
            await self._cheap(_warming(ask), n_predict=0)
        self._owed += first.last.timings.prompt_n or 0
        given = replace(ask, arm=Arm.SCREEN, suffix=ask.suffix + first.tokens, generate=1)
        second = await self._answer(given)
        return replace(second, text=first.text + second.text)

    async def _beside(self, ask: Ask) -> wire.Answer:
        """The question while the other slot reads and writes something else."""
        other = self._cheap(
            ask.prompt[-COMPANY_PROMPT:],
            n_predict=COMPANY_TOKENS,
            id_slot=self._watch.places.spare,
            cache_prompt=False,
        )
        company = asyncio.create_task(other)
        try:
            await asyncio.sleep(0)  # it goes first, and works many times as long as the question
            return await self._question(ask)
        finally:
            await asyncio.gather(company, return_exceptions=True)

    def _has_room(self, ask: Ask) -> bool:
        """Whether the prefix can be warmed at all."""
        return len(ask.prefix) + WARM_TOKENS < self._limits.context_tokens

    async def _question(self, ask: Ask) -> wire.Answer:
        """The ask itself, cheap to repeat only if its prefix is known to be cached."""
        options = {"n_predict": ask.generate, "greedy": ask.arm is not Arm.SAMPLED}
        if ask.prefix != self._warm:
            answer = await self._prefill(ask.prompt, **options)
            self._warm = ask.prefix
            return answer
        try:
            answer = await self._cheap(ask.prompt, **options)
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
        if self._keeps:  # it can keep one, so somebody took the slot, or it was started again
            self._watch.seen += 1
            self._warm, self._doubtful = None, True

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

    async def _request(
        self,
        prompt: Sequence[int],
        *,
        greedy: bool = True,
        **options: Any,  # noqa: ANN401
    ) -> wire.Answer:
        body = {
            "prompt": list(prompt),
            "cache_prompt": True,
            "id_slot": self._watch.places.screen,
            "n_probs": SCORES,
            "return_tokens": True,
            "stream": True,
            **(GREEDY if greedy else {}),
            **options,
        }
        self._watch.settled = False
        most = ANSWER_BYTES + ECHO_BYTES * len(prompt)
        try:
            async with aclosing(post_stream(self._client, "completion", body, most)) as events:
                seen = [wire.read(wire.Event, event) async for event in events]
        except TransientFault:
            self._doubtful = True
            raise
        self._watch.settled = True
        answer = wire.joined(seen)
        wire.check_count(answer.last, len(prompt))
        return answer


def _warming(ask: Ask) -> tuple[int, ...]:
    """The ask's prefix and four tokens that the question does not begin with.

    Otherwise the question's first token would be cached too.
    """
    extra = next((t for t in reversed(ask.prefix) if t not in ask.suffix[:1]), ask.prefix[-1])
    return (*ask.prefix, *(extra,) * WARM_TOKENS)


async def recognises(server: Server) -> bool:
    """Whether the server shows llama-server's properties."""
    return "default_generation_settings" in await server.page("props")


async def connect(server: Server, choice: Choice) -> LlamaCpp:
    """Open it; it has the one model that it was started with, and that model's tokenizer.

    Raises:
        UsageError: another model was named, or a tokenizer.
        RuntimeFault: it does not answer as a llama-server with one model does.
    """
    if choice.tokenizer is not None:
        raise UsageError(message("runtime.own-tokenizer"))
    runtime = await LlamaCpp.connect(server.client, exclusive=choice.exclusive)
    has = runtime.about.model or ""
    if choice.model is not None and shown_model(choice.model) != has:
        raise UsageError(message("runtime.no-model", name=choice.model, names=has))
    return runtime


ADAPTER = Adapter(recognises, connect)
