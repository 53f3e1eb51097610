"""Which kinds of servers there are, in the order in which they are tried.

An adapter is a module with ``ADAPTER``; it stands in `ORDER` once and needs nothing else.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kvphase.runtimes.server import Server
    from kvphase.runtimes.words import Words
    from kvphase.types import Runtime

__all__ = ["ORDER", "Adapter", "Choice", "Elsewhere", "find"]

ORDER: dict[str, str] = {
    "llama-server": "llamacpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "ollama": "ollama",
    "lmstudio": "lmstudio",
    "ds4": "ds4",
    "deepseek": "deepseek",
    "mlx": "mlx",
    "openai": "openai",
    "chat": "chat",
}
"""Names for ``--runtime`` and the modules of ``kvphase.runtimes``. Servers that say what they are
stand before those that only speak OpenAI's API."""


LOCAL = "FILE"
"""Stands for the place of a tokenizer's file, which no run file keeps."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a user says of a server."""

    runtime: str | None = None
    """One of `ORDER`; found out if not given."""
    model: str | None = None
    """Which of the server's models; the only one if not given."""
    tokenizer: str | None = None
    """A local tokenizer for a server without one: a file, a folder, or a packaged one's name."""
    exclusive: bool = False
    """Nobody else uses the server: cold asks may take a second slot without regard for the
    conversation that it may hold."""

    def as_json(self) -> dict[str, str | None]:
        """What a run file keeps: nothing of where a tokenizer's file is."""
        from kvphase.runtimes.server import shown_model  # late: needs the HTTP client

        return {
            "runtime": self.runtime,
            "model": None if self.model is None else shown_model(self.model),
            "tokenizer": None if self.tokenizer is None else LOCAL,
        }

    def like(self, kept: Mapping[str, str | None]) -> Choice:
        """The same with the kind and the model that a run file keeps.

        Raises:
            UsageError: other ones were chosen now, or a tokenizer's file is missing.
        """
        for name in ("runtime", "model"):
            now, before = self.as_json()[name], kept.get(name)
            if now and before and now != before:
                raise UsageError(message("run.choose-again", option=f"--{name}", name=before))
        if kept.get("tokenizer") and self.tokenizer is None:
            raise UsageError(message("runtime.tokenizer-again"))
        return replace(
            self,
            runtime=self.runtime or kept.get("runtime"),
            model=self.model or kept.get("model"),
        )

    def words(self) -> Words | None:
        """The local tokenizer, if one was named.

        Raises:
            UsageError: there is none of that name.
        """
        if self.tokenizer is None:
            return None
        from kvphase.runtimes.words import LocalWords  # late: needs the HTTP client
        from kvphase.tokens.local import load

        return LocalWords(load(self.tokenizer))


class Elsewhere(RuntimeFault):
    """The server does not do after all what this adapter needs; another one may fit."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """How one kind of server is recognised and opened."""

    recognises: Callable[[Server], Awaitable[bool]]
    """Whether the server says that it is of this kind; a port's number says nothing."""
    connect: Callable[[Server, Choice], Awaitable[Runtime]]
    """Open it.

    Raises:
        UsageError: a model or a tokenizer must be named.
        RuntimeFault: it cannot be measured; `Elsewhere` if another adapter may.
    """


async def find(server: Server, choice: Choice) -> Runtime:
    """The runtime behind ``server``: of the kind that the user names, or the first that fits.

    Raises:
        UsageError: there is no kind of that name, or as `Adapter.connect` says.
        RuntimeFault: no kind fits.
    """
    if choice.runtime is not None:
        if choice.runtime not in ORDER:
            known = ", ".join(ORDER)
            raise UsageError(message("runtime.no-kind", name=choice.runtime, known=known))
        return await _adapter(choice.runtime).connect(server, choice)
    fault: RuntimeFault | None = None
    for name in ORDER:
        adapter = _adapter(name)
        if not await adapter.recognises(server):
            continue
        try:
            return await adapter.connect(server, choice)
        except Elsewhere as other:
            fault = other
    if fault is not None:
        raise fault
    kinds = ", ".join(ORDER)
    if server.odd:
        raise RuntimeFault(message("runtime.odd-server", fault=server.odd, kinds=kinds))
    raise RuntimeFault(message("runtime.unknown-server", kinds=kinds))


def _adapter(name: str) -> Adapter:
    module = importlib.import_module(f"kvphase.runtimes.{ORDER[name]}")
    found: Adapter = module.ADAPTER
    return found
