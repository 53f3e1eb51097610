"""OpenAI's chat API: any endpoint that has it, and the base of those that say more.

The words of a prompt go as one user's message, so the server's template stands around them. Where
a local tokenizer knows that template, its head counts as the start of every prompt and positions
are exact. Where it is not known, the server's count of prompt tokens shows how many tokens it
adds, and that the number stays the same: positions are then right up to one unknown constant.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.http import Refused, post_stream, said
from kvphase.runtimes.llamacpp_wire import read
from kvphase.runtimes.openai import (
    ANSWER_BYTES,
    ECHO_BYTES,
)
from kvphase.runtimes.openai_wire import Chunk, answer_of
from kvphase.runtimes.served import ASSUMED_CONTEXT, TRIAL, Answer, Served, trial
from kvphase.runtimes.tokenizing import words_of
from kvphase.types import Limits, Template

if TYPE_CHECKING:
    from kvphase.runtimes.server import Server
    from kvphase.types import Ask

__all__ = ["ADAPTER", "Chat", "OpenAIChat"]

ANSWER_TOKENS = 8
"""Answer tokens at least: a word without its leading space may be several."""
SCORES = 20
NEWER_LIMIT = "max_completion_tokens"
"""What some providers call ``max_tokens`` now; their refusals name it."""
THINKING_OFF: dict[str, Any] = {
    "chat_template_kwargs": {"enable_thinking": False, "thinking": False}
}
"""For servers that hand this on to their template."""


_WORD = re.compile(r"\s*\w+")


def first_word(text: str) -> str:
    """The word that an answer begins with; the whole answer if it begins with none.

    A chat is asked for more tokens than the one that was wanted.
    """
    found = _WORD.match(text)
    return text if found is None else found[0]


class Chat(Served):
    """A model behind ``/v1/chat/completions``."""

    able: ClassVar[Limits] = Limits(ASSUMED_CONTEXT, ids=False, cold=False)
    path: ClassVar[str] = "v1/chat/completions"
    bare: ClassVar[bool] = True
    scores: int = SCORES
    """Next tokens whose log-probabilities are asked for."""
    quiet: bool = True
    """The server takes `thinking_off`."""
    limit: str = "max_tokens"
    """What the server calls the number of answer tokens."""
    _head: Template = Template()

    def thinking_off(self) -> dict[str, Any]:
        """What keeps the model from thinking aloud, in this server's dialect."""
        return THINKING_OFF

    def options(self, ask: Ask) -> dict[str, Any]:
        """Further fields of a request in this server's dialect."""
        del ask
        return {"logprobs": True, "top_logprobs": self.scores} if self.scores else {}

    async def template(self) -> Template:
        """Nothing more: the server puts its template around every message.

        Only its digest is told, if it is known.
        """
        return Template(digest=self._about.template)

    async def render(self, body: dict[str, Any]) -> str:
        """Not possible: requests go through the server's template as they are.

        Raises:
            UsageError: always.
        """
        del body
        raise UsageError(message("runtime.chat-only"))

    async def request(self, ask: Ask, *, salt: str | None = None) -> Answer:
        """As `Served.request`; a salt is not known to this API."""
        del salt
        words = ask.prompt[len(self._limits.bos) :]
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": await self.words.text_of(words)}],
            self.limit: max(ask.generate, ANSWER_TOKENS),
            "temperature": 0,
            **(self.thinking_off() if self.quiet else {}),
            **self.options(ask),
        }
        most = ANSWER_BYTES + ECHO_BYTES * len(ask.prompt)
        async with aclosing(post_stream(self.client, self.path, body, most)) as events:
            answer = answer_of([read(Chunk, event) async for event in events])
        return replace(answer, text=first_word(answer.text)) if ask.generate == 1 else answer

    async def negotiate(self) -> None:
        """Learn the template's size, and what the server takes, with a few tiny requests.

        Raises:
            RuntimeFault: the server does not answer.
        """
        await self._learn_head()
        ids = (await self.tokenize([TRIAL]))[0]
        asked = trial((*self._limits.bos, *ids))
        answer = await self._tried(asked)
        known = self._head.digest != Template().digest
        if known and answer.prompt_tokens not in (None, len(asked.prompt) + (self.added or 0)):
            self._forget_head()
            asked, known = trial(tuple(ids)), False
        self.check(asked, answer)
        counted = answer.prompt_tokens is not None
        self._limits = replace(
            self._limits,
            top_logprobs=len(answer.scores) and self.scores,
            cache_report=answer.cached is not None,
            counted=counted,
            offset_known=known and counted,
        )
        if answer.cached is None:
            await self.try_cache()
        thinks = bool(answer.reasoning) or not self.quiet
        template = self._head.digest if known else "unknown"
        self._about = replace(
            self._about, template=template, thinking="unknown" if thinks else "off"
        )

    async def _learn_head(self) -> None:
        """Count the template's head as the start of every prompt, where it is known."""
        try:
            self._head = await self.words.template() if self.words.has_template else Template()
        except UsageError:
            self._head = Template()
        if self._head == Template():
            self._forget_head()
            return
        bos = (*self._limits.bos, *self._head.head)
        self._limits = replace(self._limits, bos=bos)
        self.added = len(self._head.tail)

    def _forget_head(self) -> None:
        """The server's template is another one, or none is known."""
        self._head = Template()
        self._limits = replace(self._limits, bos=())
        self.added = None

    async def _tried(self, asked: Ask) -> Answer:
        """The answer to a trial; without scores, then without a word on thinking, where refused."""
        while True:
            try:
                return await self.in_time(asked)
            except Refused as fault:
                if fault.status in (401, 402, 403):
                    raise
                self._yield(fault)
            except TransientFault as fault:
                raise RuntimeFault(message("runtime.not-ready", fault=said(fault))) from fault

    def _yield(self, fault: RuntimeFault) -> None:
        """Ask for less, or in other words.

        Raises:
            RuntimeFault: nothing less can be asked for.
        """
        if self.limit != NEWER_LIMIT and NEWER_LIMIT in str(fault):
            self.limit = NEWER_LIMIT
        elif self.scores:
            self.scores = 5 if self.scores > 5 else 0
        elif self.quiet:
            self.quiet, self.scores = False, SCORES
        else:
            raise fault


class OpenAIChat(Chat):
    """Any endpoint with OpenAI's chat API."""

    called: ClassVar[str] = "OpenAI chat"


async def recognises(server: Server) -> bool:
    """Whether there is a chat; what else the server is does not matter."""
    return await server.takes(Chat.path)


async def connect(server: Server, choice: Choice) -> OpenAIChat:
    """Open an endpoint of which nothing is known but the API.

    Raises:
        UsageError: a model or a tokenizer must be named.
        RuntimeFault: it does not answer.
    """
    card = await server.pick(choice)
    words = await words_of(server, choice, card.id)
    if words is None:
        raise UsageError(message("runtime.no-tokenizer"))
    runtime = OpenAIChat.of(server, words, card.id, context=card.context)
    await runtime.negotiate()
    return runtime


ADAPTER = Adapter(recognises, connect)
