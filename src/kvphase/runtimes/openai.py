"""OpenAI's completions API: any server that has it, and the base of those that say more.

Prompts go as token ids where the server takes them, else as text that a tokenizer reads as the
very ids that were composed. The server's own count of prompt tokens is compared on every answer.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.adapters import Adapter, Choice, Elsewhere
from kvphase.runtimes.http import Refused, post_stream, said
from kvphase.runtimes.llamacpp_wire import read
from kvphase.runtimes.openai_wire import Chunk, answer_of
from kvphase.runtimes.served import ASSUMED_CONTEXT, TRIAL, Answer, Served, trial
from kvphase.runtimes.tokenizing import words_of
from kvphase.types import Limits

if TYPE_CHECKING:
    from kvphase.runtimes.server import Server
    from kvphase.types import Ask

__all__ = ["ADAPTER", "Completions", "OpenAI"]

SCORES = (20, 5, 0)
"""Next tokens whose log-probabilities are asked for; the first number that is not refused."""
ANSWER_BYTES = 4 * 2**20
"""Longest answer that is read: a few tokens with their scores."""
ECHO_BYTES = 64
"""More for each token of the prompt, which some servers repeat."""


class Completions(Served):
    """A model behind ``/v1/completions``."""

    path: ClassVar[str] = "v1/completions"
    scores: int = SCORES[0]
    """Next tokens whose log-probabilities are asked for."""
    spells_bos: bool = False
    """The server puts no BOS before a text, so the text begins with it."""

    async def prompt(self, ask: Ask) -> list[int] | str:
        """The prompt as it is sent: ids, or the text that is read as those ids."""
        if self._limits.ids:
            return list(ask.prompt)
        size = len(self._limits.bos)
        text = await self.words.text_of(ask.prompt[size:])
        return self.words.bos_text + text if self.spells_bos else text

    def options(self, ask: Ask, salt: str | None) -> dict[str, Any]:
        """Further fields of a request in this server's dialect."""
        del ask, salt
        return {"logprobs": self.scores} if self.scores else {}

    async def request(self, ask: Ask, *, salt: str | None = None) -> Answer:
        """As `Served.request`."""
        body = {
            "model": self.model,
            "prompt": await self.prompt(ask),
            "max_tokens": ask.generate,
            "temperature": 0,
            **self.options(ask, salt),
        }
        return await self.post(body, len(ask.prompt))

    async def post(self, body: dict[str, Any], size: int) -> Answer:
        """Send a body to `path`; the prompt has ``size`` tokens."""
        most = ANSWER_BYTES + ECHO_BYTES * size
        async with aclosing(post_stream(self.client, self.path, body, most)) as events:
            return answer_of([read(Chunk, event) async for event in events])

    async def negotiate(self) -> None:
        """Learn with a few tiny requests what the server takes and tells.

        Raises:
            Elsewhere: it has no completions.
            UsageError: it needs a text, and there is nothing to spell one with.
            RuntimeFault: it reads another prompt than it was sent.
        """
        ids = (await self.tokenize([TRIAL]))[0]
        asked = trial((*self._limits.bos, *ids))
        answer = await self._tried(asked)
        if not self._reads(answer, asked) and self._limits.ids:
            self._limits = replace(self._limits, ids=False)
            answer = await self._tried(asked)
        if not self._reads(answer, asked) and self._limits.bos:
            answer = await self._other_bos(asked, answer)
        self.check(asked, answer)
        self._limits = replace(
            self._limits,
            top_logprobs=len(answer.scores) and self.scores,
            cache_report=answer.cached is not None,
            counted=answer.prompt_tokens is not None,
            offset_known=answer.prompt_tokens is not None or self._limits.ids,
        )
        if answer.cached is None or self._limits.cold:
            await self.try_cache()

    @staticmethod
    def _reads(answer: Answer, asked: Ask) -> bool:
        return answer.prompt_tokens in (None, len(asked.prompt))

    async def _other_bos(self, asked: Ask, answer: Answer) -> Answer:
        """A server that puts no BOS before a text: it is spelled, or the model goes without."""
        size = len(self._limits.bos)
        if answer.prompt_tokens != len(asked.prompt) - size:
            return answer
        if self.words.bos_text:
            self.spells_bos = True
            spelled = await self._tried(asked)
            if self._reads(spelled, asked):
                return spelled
            self.spells_bos = False
        self._limits = replace(self._limits, bos=())
        return await self._tried(trial(asked.prompt[size:]))

    async def _tried(self, asked: Ask) -> Answer:
        """The answer to a trial; fewer scores, then a text, where the server refuses."""
        while True:
            try:
                return await self.in_time(asked)
            except Refused as fault:
                self._yield(fault)
            except TransientFault as fault:
                if not (self._limits.ids or self.scores):
                    raise RuntimeFault(message("runtime.not-ready", fault=said(fault))) from fault
                self._yield(fault)  # some servers choke on what they do not know

    def _yield(self, fault: RuntimeFault) -> None:
        """Ask for less, or give up.

        Raises:
            Elsewhere: nothing less can be asked for.
        """
        if isinstance(fault, Refused) and fault.status in (401, 402, 403):
            raise fault
        if self.scores:
            self.scores = SCORES[SCORES.index(self.scores) + 1] if self.scores in SCORES else 0
        elif self._limits.ids:
            self._limits, self.scores = replace(self._limits, ids=False), SCORES[0]
        else:
            raise Elsewhere(*fault.args) from fault


class OpenAI(Completions):
    """Any server with OpenAI's completions API."""

    called: ClassVar[str] = "OpenAI completions"
    able: ClassVar[Limits] = Limits(ASSUMED_CONTEXT, cold=False)


async def recognises(server: Server) -> bool:
    """Whether there are completions; what else the server is does not matter."""
    return await server.takes(Completions.path)


async def connect(server: Server, choice: Choice) -> OpenAI:
    """Open a server of which nothing is known but the API.

    Raises:
        UsageError: a model or a tokenizer must be named.
        RuntimeFault: it does not answer.
    """
    card = await server.pick(choice)
    words = await words_of(server, choice, card.id)
    if words is None:
        raise UsageError(message("runtime.no-tokenizer"))
    runtime = OpenAI.of(server, words, card.id, context=card.context)
    await runtime.negotiate()
    return runtime


ADAPTER = Adapter(recognises, connect)
