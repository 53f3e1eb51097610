"""A test double for clients of model servers: a small real model behind ten servers' HTTP APIs.

The model really keeps a compressed cache, so its accuracy depends on token positions (``w8s4``,
``w4s4``, ``w8s8``) or does not (``full``); the server really reuses prefixes and counts them; and
whatever goes wrong with servers can be switched on::

    from kvphase.testing import double

    def test_client_survives_resets():
        with double("full", dialect="openai", faults="reset=0.1") as server:
            answers = my_client(server.url)
            server.faults = "5xx"
            ...

`double` listens on a free port, from a thread; `app` is the same without a socket, for an ASGI
transport. Clients that need the model's tokenizer get it from `write_tokenizer`. The dialects and
faults are listed in docs/testing.md.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kvphase.runtimes.toy import ToyEngine, ToyWords
from kvphase.serve.dialects import DIALECTS
from kvphase.serve.faults import Faults
from kvphase.serve.server import listening, make_app
from kvphase.serve.vocabulary import Vocabulary
from kvphase.tokens.local.metadata import from_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.applications import Starlette

    from kvphase.serve.job import Desk

__all__ = ["DIALECTS", "Double", "Faults", "ToyEngine", "app", "double", "write_tokenizer"]


class Double:
    """A server that is running.

    Attributes:
        url: Its address, without a slash at the end.
        desk: What stands behind it: the model, the faults, the counts.
    """

    def __init__(self, url: str, desk: Desk) -> None:
        """Made by `double`."""
        self.url: str = url
        self.desk: Desk = desk

    @property
    def model(self) -> str:
        """What the server calls its model now."""
        return self.desk.engine.name

    @property
    def requests(self) -> int:
        """Completion requests so far."""
        return self.desk.requests

    @property
    def faults(self) -> Faults:
        """What goes wrong."""
        return self.desk.faults

    @faults.setter
    def faults(self, faults: Faults | str) -> None:
        """Switch faults on and off, from the next request on.

        Raises:
            UsageError: there is no such fault, or it cannot have that value.
        """
        self.desk.faults = _parsed(faults)


@contextlib.contextmanager
def double(
    model: str | ToyEngine = "w8s4",
    *,
    dialect: str = "llama-server",
    faults: Faults | str = "",
    throttle: float | None = None,
) -> Iterator[Double]:
    """Serve a toy model on a free port of this machine for the length of a ``with`` block.

    Args:
        model: ``full``, ``w8s4``, ``w4s4`` or ``w8s8``, or an engine of one's own.
        dialect: Whose HTTP API is spoken: one of `DIALECTS`.
        faults: What goes wrong, as for ``kvphase serve --fault``: ``reset=0.01,forget-cache``.
        throttle: Prompt tokens evaluated per second at most; None as fast as it goes.

    Raises:
        UsageError: there is no such model, dialect or fault.
    """
    made = app(model, dialect=dialect, faults=faults, throttle=throttle)
    with listening(made) as url:
        yield Double(url, made.state.desk)


def app(
    model: str | ToyEngine = "w8s4",
    *,
    dialect: str = "llama-server",
    faults: Faults | str = "",
    throttle: float | None = None,
) -> Starlette:
    """The same as an ASGI application, for a client's in-process transport.

    Faults that break a connection (``refuse``, ``reset``, ``restart``) need a socket.

    Args:
        model: As for `double`.
        dialect: As for `double`.
        faults: As for `double`.
        throttle: As for `double`.

    Raises:
        UsageError: there is no such model, dialect or fault.
    """
    return make_app(model, _parsed(faults), throttle, dialect)


def write_tokenizer(path: str | Path) -> None:
    """Write the toys' ``tokenizer.json``, as for ``--tokenizer``: all toys have the same.

    Args:
        path: The file to write.
    """
    from_metadata(Vocabulary(ToyWords.load()).metadata()).save(path)


def _parsed(faults: Faults | str) -> Faults:
    return Faults.parse([faults]) if isinstance(faults, str) else faults
