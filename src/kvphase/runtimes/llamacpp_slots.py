"""The slots of a llama-server: which to use, and whether anybody else is at work.

``GET /slots`` is on unless the server was started with ``--no-slots``. A slot that has never had
a task lists none (``id_task`` is missing); an idle one lists its last, and task numbers only
grow. A request that names no slot goes to the one whose prompt it continues, else to the least
recently used, and of slots never used to the last one. So a slot that was never used holds
nobody's conversation, and of those the first is the one that others will be given last.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel

from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runtimes.http import get_objects
from kvphase.runtimes.llamacpp_wire import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2

EVERY_ASKS = 50
EVERY_SECONDS = 10.0
"""The slots are looked at after so many asks or seconds, whichever comes first."""
QUIET_SECONDS = 10.0
"""So long an ask that wants to be alone waits for others to finish."""
QUIET_PAUSE = 0.5


class Slot(BaseModel):
    """One element of ``/slots``."""

    id: int
    is_processing: bool
    id_task: int | None = None
    """Its task, or its last one; missing (or -1) if it never had any."""

    @property
    def task(self) -> int:
        """Its task's number; -1 without one."""
        return -1 if self.id_task is None else max(self.id_task, -1)


@dataclass(frozen=True, slots=True)
class Places:
    """The slots that a measurement uses."""

    screen: int = 0
    """Where the shared prefix is kept."""
    spare: int = 0
    """Where prompts are evaluated that share nothing; the same slot if no other is free."""


def choose(slots: Sequence[Slot] | None, total: int, *, exclusive: bool) -> Places:
    """The slots to use: idle ones, never used before others, then the least recently used.

    Args:
        slots: What the server says of them; None where it does not tell.
        total: How many there are.
        exclusive: Nobody else uses the server, so that any other slot may be the spare one.
    """
    if not slots:
        return Places(0, int(exclusive and total > 1))
    first, *others = sorted(slots, key=lambda slot: (slot.is_processing, slot.task, slot.id))
    unused = [slot for slot in others if not slot.is_processing and slot.task < 0]
    spare = next(iter(others if exclusive else unused), first)
    return Places(first.id, spare.id)


class Watch:
    """Looks at the slots now and then, and counts how often somebody else was at work.

    To be asked only while none of our own requests runs.
    """

    def __init__(self, client: httpx2.AsyncClient, *, tells: bool) -> None:
        """Watch the server behind ``client``; ``tells`` is False if it has no ``/slots``."""
        self.places: Places = Places()
        self.settled = True
        """No request of ours broke off last, so that none can still be running."""
        self.seen: int = 0
        """Observations of foreign work."""
        self._client = client
        self._tells = tells
        self._told = False
        self._tasks: dict[int, int] = {}
        self._asks = 0
        self._looked = -math.inf

    @property
    def traffic(self) -> int | None:
        """Observations of foreign work; None where the server does not tell."""
        return self.seen if self._told or self.seen else None

    async def start(self, total: int, *, exclusive: bool) -> None:
        """Choose the slots to use; see `choose`."""
        slots = await self.look()
        self.places = choose(slots, total, exclusive=exclusive)
        if slots:
            self._worked(slots)
            self.seen += self._is_busy(slots)

    async def look(self) -> list[Slot] | None:
        """The slots as they are now; None if the server does not tell."""
        if not self._tells:
            return None
        self._asks, self._looked = 0, time.monotonic()
        try:
            slots = [read(Slot, one) for one in await get_objects(self._client, "slots")]
        except TransientFault:
            return None  # it may tell another time; nothing depends on it
        except RuntimeFault:
            self._tells = False
            return None
        self._told = self._told or bool(slots)
        return slots

    async def now_and_then(self) -> None:
        """Before each ask: look if the last look is long ago."""
        self._asks += 1
        if self._asks > EVERY_ASKS or time.monotonic() - self._looked > EVERY_SECONDS:
            await self.check()

    async def check(self) -> None:
        """Look, and count if somebody is at work or was since the last look."""
        slots = await self.look()
        if slots is None:
            return
        worked = self._worked(slots)
        self.seen += worked or self._is_busy(slots)

    async def quiet(self) -> None:
        """Wait until nobody else is at work, but not for ever."""
        deadline = time.monotonic() + QUIET_SECONDS
        while (slots := await self.look()) is not None:
            self._worked(slots)
            if not self._is_busy(slots):
                return
            if time.monotonic() >= deadline:
                self.seen += 1
                return
            await asyncio.sleep(QUIET_PAUSE)

    def _is_busy(self, slots: Sequence[Slot]) -> bool:
        """Whether a slot works, though not for us."""
        ours = (self.places.screen, self.places.spare)
        return any(slot.is_processing and (self.settled or slot.id not in ours) for slot in slots)

    def _worked(self, slots: Sequence[Slot]) -> bool:
        """Whether a slot that is not ours had a task since the last look; remembers them all."""
        ours = (self.places.screen, self.places.spare)
        before, self._tasks = self._tasks, {slot.id: slot.task for slot in slots}
        return any(
            slot.task != before.get(slot.id, slot.task) for slot in slots if slot.id not in ours
        )


__all__ = ["Places", "Slot", "Watch", "choose"]
