"""What servers behind HTTP have in common: one ask at a time, checked, and paid for once.

An adapter says how one request is made (`Served.request`) and what came back (`Answer`). Here is
the rest: deadlines, failures that may pass and those that may not, whether a prefix is found in
the cache, and what must be true of every answer: as many prompt tokens as were composed, from the
model that was asked before.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runtimes.http import ANSWER_SECONDS, Busy, Unreachable, said
from kvphase.runtimes.reuse import Reuse
from kvphase.runtimes.scores import Score, Scorer, margin
from kvphase.runtimes.server import Server, shown_model
from kvphase.types import Arm, Ask, Limits, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

    from kvphase.runtimes.words import Words
    from kvphase.types import About, Template

__all__ = ["ASSUMED_CONTEXT", "TRIAL", "Answer", "Served", "trial"]

TRIAL = " one two three four five"
"""Asked once or twice to learn what a server does with a prompt."""
TRIAL_TOKENS = 300
"""At least one whole block of any server's cache."""
ASSUMED_CONTEXT = 16_384
"""Where a server does not say how much fits. A prompt that does not is refused, or cut and seen."""
SHORT_TOKENS = 512
"""A prompt without a shared prefix is asked like a question up to this length."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, whatever the server's dialect."""

    text: str
    finished: bool = True
    """Not broken off before there was an answer."""
    reasoning: str = ""
    """What the model thought aloud; never part of the answer."""
    scores: tuple[Score, ...] = ()
    """Of the first answer token, best first."""
    prompt_tokens: int | None = None
    """Of the whole prompt, by the server's count."""
    cached: int | None = None
    """Of those, how many came from the cache."""
    generated: int = 0
    model: str | None = None
    """Which model answers, as the server calls it."""
    prompt_ids: tuple[int, ...] | None = None
    """The prompt as the model read it, where the server shows it."""


class Served(ABC):
    """A model behind HTTP."""

    grain: ClassVar[int] = 1
    """Hits land on multiples of so many tokens."""
    settle: ClassVar[int] = 1
    """Questions on a prefix before the server is expected to find it."""
    bare: ClassVar[bool] = False
    """Answers begin without a leading space, as a chat's do."""
    called: ClassVar[str]
    """The server's name, as `kvphase info` shows it."""
    able: ClassVar[Limits] = Limits(ASSUMED_CONTEXT)
    """What all such servers can do."""
    traffic: int | None = None
    """Such servers do not tell whether others are at work."""

    def __init__(
        self, server: Server, about: About, limits: Limits, words: Words, model: str
    ) -> None:
        """Measure ``model`` on ``server``.

        Args:
            server: Where it is.
            about: What it says it is.
            limits: What it can do.
            words: Whose tokenizer counts.
            model: As requests must name it.
        """
        self._server = server
        self._about = about
        self._limits = limits
        self.words: Words = words
        self.model: str = model
        self.added: int | None = 0
        """Tokens that the server puts around every prompt; None until an answer shows how many."""
        self.reuse: Reuse = Reuse(self.grain, self.settle)
        self._scorer = Scorer(words.tokenize, bare=self.bare)
        self._answering: str | None = None
        self._was_away = False
        self._turn = asyncio.Lock()

    @classmethod
    def of(
        cls,
        server: Server,
        words: Words,
        model: str,
        *,
        context: int | None,
        shown: str | None = None,
        build: str | None = None,
        quant: str | None = None,
    ) -> Self:
        """One of this class as it is before anything was tried.

        Args:
            server: Where it is.
            words: Whose tokenizer counts.
            model: As requests must name it.
            context: Tokens that fit, as far as the server says.
            shown: The model's name, if not ``model``.
            build: The server's version.
            quant: The model's quantisation.
        """
        extra = (
            {} if context else {"context": message("endpoint.context.assumed", n=ASSUMED_CONTEXT)}
        )
        about = server.about(cls.called, shown or model, build=build, quant=quant, extra=extra)
        limits = replace(
            cls.able,
            context_tokens=context or ASSUMED_CONTEXT,
            bos=words.bos,
            tokenizer=words.source,
        )
        return cls(server, about, limits, words, model)

    @property
    def client(self) -> httpx2.AsyncClient:
        """Of the server."""
        return self._server.client

    @property
    def about(self) -> About:
        """What the server says it is."""
        return self._about

    @property
    def limits(self) -> Limits:
        """What the server can do, and what is done about what it cannot."""
        return self._limits

    @property
    def lost_prefix(self) -> int:
        """Questions that should have found their prefix in the cache and did not."""
        return self.reuse.lost

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        return await self.words.tokenize(texts, special=special)

    async def template(self) -> Template:
        """The chat template around a user's text, thinking off.

        Raises:
            UsageError: there is none, or it changes the user's text.
        """
        template = await self.words.template()
        self._about = replace(self._about, template=template.digest)
        return template

    async def render(self, body: dict[str, Any]) -> str:
        """A request as the text that the model reads, BOS left out; thinking off unless it says so.

        Raises:
            UsageError: there is no template, or it refuses these messages.
        """
        text = await self.words.render(body)
        self._about = replace(self._about, template="request")
        return text

    @abstractmethod
    async def request(self, ask: Ask, *, salt: str | None = None) -> Answer:
        """Send one request and read its answer.

        Args:
            ask: ``ask.prompt`` is what the model must read, BOS included.
            salt: Part of the cache's key, so that nothing is found there; None for none.

        Raises:
            TransientFault: it failed in a way that may pass.
            RuntimeFault: the server will not do it.
        """

    async def identity(self) -> str | None:
        """The model that is loaded now, as `model` names it; None if the server does not say."""
        cards = await Server(self.client).cards()
        names = [card.id for card in cards]
        return self.model if self.model in names else next(iter(names), None)

    async def complete(self, ask: Ask) -> Reply:
        """Answer one ask.

        Raises:
            TransientFault: a question on a cached prefix failed, or a short prompt, or the server
                turned the request away before it worked on it.
            RuntimeFault: a prefill failed, another prompt was evaluated than was sent, or another
                model answers.
        """
        async with self._turn:
            if not self._abreast(ask):
                return await self._reply(ask, alone=True)
        return await self._reply(ask, alone=False)

    def _abreast(self, ask: Ask) -> bool:
        """Whether others may be under way beside ``ask``: not while it pays for a prefix."""
        return self._limits.concurrency > 1 and self._is_cheap(ask)

    def _is_cheap(self, ask: Ask) -> bool:
        """Whether few tokens are evaluated for ``ask``, so that it may be sent again."""
        if ask.arm is Arm.COLD:
            return False
        return self.reuse.expects(ask) or (not ask.prefix and len(ask.suffix) <= SHORT_TOKENS)

    async def _reply(self, ask: Ask, *, alone: bool) -> Reply:
        """One answer, checked; what a lone one took tells whether its prefix was found."""
        cold = ask.arm is Arm.COLD
        salt = f"kvphase-{ask.id}" if cold and self._limits.cold else None
        await self._same_model()
        started = time.perf_counter()
        answer = await self._asked(ask, salt)
        seconds = time.perf_counter() - started
        if answer.cached is None and self._limits.cache_report:
            answer = replace(answer, cached=0)  # told only where something was found
        self.check(ask, answer)
        if not cold and (alone or answer.cached is not None):
            self.reuse.notice(ask, answer.cached, seconds)
        expected, against = await self._scorer.of(ask, answer.scores)
        cached, whole = answer.cached, answer.prompt_tokens
        return Reply(
            text=answer.text,
            logprob=expected,
            against=against,
            margin=margin(answer.scores),
            finished=answer.finished,
            prefilled=None if cached is None or whole is None else whole - cached,
            cached=cached,
            generated=answer.generated,
            seconds=seconds,
        )

    async def try_cache(self) -> None:
        """Learn whether the server tells what it found in its cache, and whether a salt hides it.

        Some tell only of hits, so a prompt is sent twice, and a third time with a salt.
        """
        ids = (await self.tokenize([TRIAL * (TRIAL_TOKENS // 4)]))[0][:TRIAL_TOKENS]
        asked = trial((*self._limits.bos, *ids))
        await self.in_time(asked)
        told = (await self.in_time(asked)).cached is not None
        self._limits = replace(self._limits, cache_report=told)
        if self._limits.cold:
            salt = f"kvphase-{secrets.token_hex(8)}"
            hidden = not (await self.in_time(asked, salt)).cached
            self._limits = replace(self._limits, cold=hidden)

    async def _same_model(self) -> None:
        """After a failure: a server that was started again must serve the same model."""
        if not self._was_away:
            return
        now = await self.identity()
        if now is not None and now != self.model:
            before, name = map(shown_model, (self.model, now))
            raise RuntimeFault(message("runtime.other-model", name=name, before=before))
        self._was_away = False

    async def _asked(self, ask: Ask, salt: str | None) -> Answer:
        """One request; cheap ones have a deadline and may be asked again."""
        cheap = self._is_cheap(ask)
        try:
            if cheap:
                return await self.in_time(ask, salt)
            return await self.request(ask, salt=salt)
        except Busy:
            raise
        except TransientFault as fault:
            self._was_away = True  # also where an answer broke off: another one may come back
            if isinstance(fault, Unreachable):
                self.reuse.forget()  # a server that went away comes back with an empty cache
                raise
            if cheap:
                raise
            raise RuntimeFault(
                message("runtime.prefill", fault=said(fault), tokens=len(ask.prompt))
            ) from fault

    async def in_time(self, ask: Ask, salt: str | None = None) -> Answer:
        """One request that evaluates few tokens, so that it has a deadline.

        Raises:
            TransientFault: nothing came before it, or as `request` says.
            RuntimeFault: as `request` says.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self.request(ask, salt=salt)
        except TimeoutError as error:
            seconds = round(ANSWER_SECONDS)
            raise TransientFault(message("runtime.slow-question", seconds=seconds)) from error

    def check(self, ask: Ask, answer: Answer) -> None:
        """Stop if another prompt was evaluated than was sent, or another model answers.

        Raises:
            RuntimeFault: every position would be wrong, or every answer somebody else's.
        """
        size, count = len(ask.prompt), answer.prompt_tokens
        if answer.prompt_ids is not None and answer.prompt_ids != ask.prompt:
            raise RuntimeFault(message("runtime.other-ids", size=size))
        if count is not None:
            if self.added is None:
                self.added = max(0, count - size)
            if count != size + self.added:
                key = "runtime.cut" if count < size + self.added else "runtime.grown"
                raise RuntimeFault(message(key, other=count, size=size + self.added))
        if answer.model is not None:
            if self._answering is None:
                self._answering = answer.model
            if answer.model != self._answering:
                before, name = map(shown_model, (self._answering, answer.model))
                raise RuntimeFault(message("runtime.other-model", name=name, before=before))


def trial(prompt: Sequence[int]) -> Ask:
    """A prompt that is asked to learn about a server."""
    return Ask(
        id="trial",
        prefix=(),
        suffix=tuple(prompt),
        target=0,
        expected="",
        candidates=(),
        arm=Arm.PILOT,
        item=0,
        block=0,
        context=0,
        pad=0,
    )
