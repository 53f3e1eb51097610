"""What one HTTP server says of itself: each page is asked for once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, TransientFault, UsageError
from kvphase.runtimes.http import Refused, get_json, is_loopback, post_json, said
from kvphase.runtimes.llamacpp_wire import LONGEST_NAME, file_name
from kvphase.types import About

if TYPE_CHECKING:
    import httpx2

    from kvphase.runtimes.adapters import Choice

__all__ = ["Card", "Server", "shown_model"]

LISTED = 12
"""Models that are named where one has to be chosen."""
MODELS = "v1/models"
ABSENT = (404, 405, 501)
"""Statuses of a path that a server does not have."""
CONTEXTS = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""What servers call the context length of a model in their list."""


@dataclass(frozen=True, slots=True)
class Card:
    """One model in a server's list."""

    id: str
    """As requests must name it."""
    owner: str = ""
    """``owned_by``: servers put their own name there."""
    context: int | None = None
    """Prompt plus answer tokens that fit, where the list says so."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Everything that the list says of it."""

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Card | None:
        """From an element of ``data``; None if it has no name."""
        name = entry.get("id")
        if not isinstance(name, str) or not name:
            return None
        meta = entry.get("meta")
        places = (entry, meta if isinstance(meta, dict) else {})
        sizes = [place.get(key) for place in places for key in CONTEXTS]
        context = next((n for n in sizes if isinstance(n, int) and n > 0), None)
        return cls(name, str(entry.get("owned_by") or ""), context, entry)


class Server:
    """A server and the pages that it has shown."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        """Ask through ``client``."""
        self.client: httpx2.AsyncClient = client
        self._pages: dict[str, dict[str, Any]] = {}
        self._paths: dict[str, bool] = {}
        self.odd: str = ""
        """What was seen that no model server sends."""

    async def page(self, path: str) -> dict[str, Any]:
        """The JSON object at ``path``; empty where there is none.

        Raises:
            TransientFault: the server did not answer.
            RuntimeFault: it wants a key.
        """
        if path not in self._pages:
            try:
                self._pages[path] = await get_json(self.client, path)
            except TransientFault:
                raise
            except Refused as fault:
                # Gateways forbid what they do not have; the list of models is there for all.
                if fault.status == 401 or (fault.status == 403 and path == MODELS):
                    raise
                self._pages[path] = {}
            except RuntimeFault as fault:
                self.odd = said(fault)
                self._pages[path] = {}
        return self._pages[path]

    async def cards(self) -> list[Card]:
        """The models in OpenAI's list; none where there is no such list."""
        data = (await self.page(MODELS)).get("data")
        entries = data if isinstance(data, list) else []
        cards = [Card.read(entry) for entry in entries if isinstance(entry, dict)]
        return [card for card in cards if card is not None]

    async def takes(self, path: str) -> bool:
        """Whether there is something at ``path`` to post to: an empty request is not unknown there.

        Raises:
            TransientFault: the server did not answer.
        """
        if path not in self._paths:
            try:
                await post_json(self.client, path, {})
                self._paths[path] = True
            except Refused as fault:
                self._paths[path] = fault.status not in ABSENT
            except TransientFault as fault:
                if not _answered(fault):
                    raise
                self._paths[path] = True
            except RuntimeFault:
                self._paths[path] = False  # HTML, or no JSON: nothing of the kind
        return self._paths[path]

    async def pick(self, choice: Choice) -> Card:
        """The model to measure: the one that was named, or the only one there is.

        Raises:
            UsageError: there are several and none was named, or none of that name.
        """
        cards = await self.cards()
        names = [shown_model(card.id) for card in cards]
        if choice.model is None:
            if len(cards) == 1:
                return cards[0]
            if not cards:
                raise UsageError(message("runtime.no-list"))
            raise UsageError(message("runtime.many-models", n=len(cards), names=listed(names)))
        for card in cards:
            if choice.model in (card.id, shown_model(card.id)):
                return card
        if cards:
            raise UsageError(message("runtime.no-model", name=choice.model, names=listed(names)))
        return Card(choice.model)  # a server without a list may still know the name

    def about(self, runtime: str, model: str | None, **facts: Any) -> About:  # noqa: ANN401
        """Describe the server without its host name and without directories.

        Args:
            runtime: Its name.
            model: As the server calls it.
            facts: ``build``, ``quant``, ``extra`` and the like, as `About` has them.
        """
        address = self.client.base_url
        host = address.host if is_loopback(address.host) else "host"
        port = f":{address.port}" if address.port else ""
        name = None if model is None else shown_model(model)
        return About(f"{address.scheme}://{host}{port}", runtime, model=name, **facts)


def shown_model(name: str) -> str:
    """A model's name without the directories of a path; ``owner/name`` stays as it is."""
    is_path = name.startswith(("/", "~", ".", "\\")) or "\\" in name or name.count("/") > 1
    return (file_name(name) if is_path else name)[:LONGEST_NAME]


def listed(names: list[str]) -> str:
    """The first few names, and how many there are besides."""
    more = f" (+{len(names) - LISTED})" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _answered(fault: TransientFault) -> bool:
    """Whether a failure is an answer: a server that chokes on an empty request has the path."""
    text = fault.args[0] if fault.args else ""
    return getattr(text, "key", "") == "runtime.failed"
