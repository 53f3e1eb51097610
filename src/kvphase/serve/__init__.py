"""Serves a toy model behind llama-server's HTTP API, with faults that can be switched on.

`serving` is the test double for anything that talks to a llama-server::

    with serving("w8s4", Faults(forget=True)) as url:
        ...
"""

from __future__ import annotations

from kvphase.serve.app import create_app
from kvphase.serve.faults import Faults
from kvphase.serve.server import run, serving

__all__ = ["Faults", "create_app", "run", "serving"]
