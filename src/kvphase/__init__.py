"""kvphase: is my language model wrong because of where the sentence stands?

The public interface is what ``__all__`` names; it is loaded on first use, so that importing the
package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kvphase.version import __version__

if TYPE_CHECKING:
    from kvphase.errors import KvphaseError, RuntimeFault, StoreError, TransientFault, UsageError
    from kvphase.runs.budget import Budget
    from kvphase.runs.check import Run, check, check_async, load
    from kvphase.runs.execute import execute
    from kvphase.runs.settings import Settings
    from kvphase.runs.shift import ShiftRun
    from kvphase.runs.shift_api import shift
    from kvphase.runs.store import Store
    from kvphase.stats import measure
    from kvphase.types import Answers, Ask, Flow, Reply, Runtime, Verdict

_WHERE = {
    "Answers": "types",
    "Ask": "types",
    "Budget": "runs.budget",
    "Flow": "types",
    "KvphaseError": "errors",
    "Reply": "types",
    "Run": "runs.check",
    "Runtime": "types",
    "RuntimeFault": "errors",
    "Settings": "runs.settings",
    "ShiftRun": "runs.shift",
    "Store": "runs.store",
    "StoreError": "errors",
    "TransientFault": "errors",
    "UsageError": "errors",
    "Verdict": "types",
    "check": "runs.check",
    "check_async": "runs.check",
    "execute": "runs.execute",
    "load": "runs.check",
    "measure": "stats",
    "shift": "runs.shift_api",
}

__all__ = [
    "Answers",
    "Ask",
    "Budget",
    "Flow",
    "KvphaseError",
    "Reply",
    "Run",
    "Runtime",
    "RuntimeFault",
    "Settings",
    "ShiftRun",
    "Store",
    "StoreError",
    "TransientFault",
    "UsageError",
    "Verdict",
    "__version__",
    "check",
    "check_async",
    "execute",
    "load",
    "measure",
    "shift",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'kvphase' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kvphase.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
