"""``mlx_lm.server``: completions of text, scores by id, cache counts; a tokenizer must be named.

Its list of models shows what lies in the disk's cache, not what is loaded, and asking for another
would load it. So the model that it was started with is asked for (``default_model``), unless one is
named. The server says what it is only in the fingerprint of an answer, and in what it says of a
path that it has not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.adapters import Adapter, Choice
from kvphase.runtimes.http import post_json
from kvphase.runtimes.openai import Completions
from kvphase.runtimes.served import ASSUMED_CONTEXT
from kvphase.types import Limits

if TYPE_CHECKING:
    from kvphase.runtimes.server import Server
    from kvphase.types import Ask

__all__ = ["ADAPTER", "Mlx"]

MODEL = "default_model"
"""What the server calls the model that it was started with."""
SCORES = 10
FINGERPRINT = re.compile(r"\d+\.\d+[\w.]*-\d+\.\d+[\w.]*-\S+")
"""Versions of mlx-lm and of mlx, then platform and GPU."""
TINY: dict[str, Any] = {"prompt": "a", "max_tokens": 1, "temperature": 0.0}


class Mlx(Completions):
    """An mlx_lm.server."""

    called: ClassVar[str] = "mlx_lm.server"
    able: ClassVar[Limits] = Limits(ASSUMED_CONTEXT, ids=False, cold=False)

    scores: int = SCORES

    def options(self, ask: Ask, salt: str | None) -> dict[str, Any]:
        """Scores under this server's names: a boolean and a number."""
        del ask, salt
        return {"logprobs": True, "top_logprobs": self.scores} if self.scores else {}

    async def identity(self) -> str | None:
        """Not told: the list shows what is on disk."""
        return None


async def recognises(server: Server) -> bool:
    """Whether models have no owner and an answer has the fingerprint of mlx-lm.

    That takes one token on the model that the server was started with.
    """
    owners = [card.raw.get("owned_by") for card in await server.cards()]
    is_ok = (await server.page("health")).get("status") == "ok"
    if any(owners) or not is_ok or not await server.takes(Completions.path):
        return False
    return await _fingerprint(server, MODEL) is not None


async def _fingerprint(server: Server, model: str) -> str | None:
    try:
        answer = await post_json(server.client, Completions.path, {**TINY, "model": model})
    except TransientFault:
        raise
    except RuntimeFault:
        return None
    found = answer.get("system_fingerprint")
    return found if isinstance(found, str) and FINGERPRINT.fullmatch(found) else None


async def connect(server: Server, choice: Choice) -> Mlx:
    """Open it.

    Raises:
        UsageError: a tokenizer must be named.
        RuntimeFault: it does not answer as mlx_lm.server does.
    """
    words = choice.words()
    if words is None:
        raise UsageError(message("runtime.no-tokenizer"))
    name = MODEL if choice.model is None else (await server.pick(choice)).id
    version = await _fingerprint(server, name)
    cards = await server.cards()
    shown = cards[0].id if choice.model is None and len(cards) == 1 else name
    runtime = Mlx.of(
        server,
        words,
        name,
        context=None,
        shown=shown,
        build=version and "-".join(version.split("-")[:2]),
    )
    await runtime.negotiate()
    return runtime


ADAPTER = Adapter(recognises, connect)
