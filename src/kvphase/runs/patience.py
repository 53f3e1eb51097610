"""How long to wait before a question is asked again, and when not to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault
from kvphase.runs.budget import BudgetSpent
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.errors import TransientFault
    from kvphase.runs.budget import Meter
    from kvphase.types import Ask

__all__ = ["pause"]

WAITS = (0.5, 1.0, 2.0)
"""Seconds before a question is asked again; after the last one the run stops."""
BUSY_WAITS = (2.0, 10.0, 30.0)
"""The same for a server that turned the request away, where it does not say how long to wait."""
LONGEST = 120.0
"""No server is waited for longer than that at a time."""


def pause(ask: Ask, fault: TransientFault, tries: int, meter: Meter | None) -> float:
    """Seconds to wait before ``ask`` is sent again.

    A cold ask is a prefill of its own and is never repeated blindly: only where the server had not
    begun to work on it.

    Args:
        ask: What failed.
        fault: How.
        tries: How often it was sent so far, at least once.
        meter: What is left of the budget; None without one.

    Raises:
        RuntimeFault: it should not be sent again, or there is no time left to.
        BudgetSpent: the budget does not hold the wait that the server asked for.
    """
    waits = BUSY_WAITS if fault.untouched else WAITS
    if ask.arm is Arm.COLD and not fault.untouched:
        raise RuntimeFault(*fault.args) from fault
    if tries > len(waits):
        raise RuntimeFault(message("run.asked-often", fault=_said(fault), tries=tries)) from fault
    wait = waits[tries - 1] if fault.wait is None else fault.wait
    if wait > LONGEST:
        raise RuntimeFault(message("run.long-wait", fault=_said(fault), seconds=wait)) from fault
    left = None if meter is None else meter.left().seconds
    if left is not None and wait >= left:
        if fault.wait is None:  # the server asked for nothing: what stopped the run is the fault
            raise RuntimeFault(*fault.args) from fault
        raise BudgetSpent(message("run.spent-waiting", seconds=wait)) from fault
    return wait


def _said(fault: TransientFault) -> str:
    """As a message that can be translated, where it is one."""
    text = fault.args[0] if fault.args else ""
    return text if isinstance(text, str) else str(fault)
