"""What a display of a run's progress is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.runs.execute import Event
    from kvphase.runs.stages import Result, Skipped, Stage
    from kvphase.types import About


class Watcher(Protocol):
    """What shows a run's progress."""

    def opened(self, about: About, path: Path) -> None:
        """The run file is open."""
        ...

    def times(self) -> None:
        """The endpoint is about to be timed."""
        ...

    def begins(self, stage: Stage) -> None:
        """Every position of a stage is known and verified; asking begins."""
        ...

    def answered(self, event: Event) -> None:
        """One more answer."""
        ...

    def ends(self, result: Result) -> None:
        """A stage is done."""
        ...

    def skips(self, skipped: Skipped) -> None:
        """A rung is left out."""
        ...
