"""What an endpoint is, what it can do, and which words its tokenizer offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.errors import KvphaseError
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey

if TYPE_CHECKING:
    from kvphase.runtimes.adapters import Choice
    from kvphase.types import About, Limits, Vocab


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The answers to ``kvphase info``."""

    about: About
    limits: Limits
    vocab: Vocab | None
    vocab_error: str | None
    chat: bool
    """Whether the endpoint renders a chat template."""


async def inspect(target: str, choice: Choice | None = None) -> Endpoint:
    """Ask an endpoint what it is; a token or two are generated where it does not say.

    Args:
        target: As for `open_runtime`.
        choice: As for `open_runtime`.

    Raises:
        UsageError: the target makes no sense, or a model or a tokenizer must be named.
        RuntimeFault: it cannot be reached.
    """
    async with open_runtime(target, choice=choice) as runtime:
        vocab, why = None, None
        try:
            vocab = await survey(runtime.tokenize)
        except KvphaseError as error:
            why = error.args[0]
        try:
            chat = bool((await runtime.template()).tail)
        except KvphaseError:
            chat = False
        return Endpoint(runtime.about, runtime.limits, vocab, why, chat)
