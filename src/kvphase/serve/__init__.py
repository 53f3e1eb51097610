"""Serves a toy model behind a model server's HTTP API, with faults that can be switched on.

llama-server's by default, nine others by name (`DIALECTS`). `kvphase.testing` is the same for the
tests of other projects.
"""

from __future__ import annotations

from kvphase.serve.app import create_app
from kvphase.serve.dialects import DIALECTS
from kvphase.serve.faults import Faults
from kvphase.serve.server import run, serving

__all__ = ["DIALECTS", "Faults", "create_app", "run", "serving"]
