"""Progress on stderr: the curve so far, time left and tokens spent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from kvphase.catalogue import message
from kvphase.report.ladder import rung_name
from kvphase.report.lines import Glyphs, clean, show
from kvphase.report.terminal import ENGLISH, curve_lines
from kvphase.stats import wilson
from kvphase.types import Arm, CurvePoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console

    from kvphase.catalogue import Catalogue, Message
    from kvphase.runs.execute import Event
    from kvphase.runs.stages import Result, Skipped, Stage
    from kvphase.types import About

_REFRESH = 0.25
"""Seconds between redraws on a terminal."""
_LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal."""
_SHOWN = (Arm.SCREEN, Arm.SHIFT)
"""Answers that the curve counts."""


class Progress:
    """A live display on a terminal, a line now and then elsewhere. Use as a context manager."""

    def __init__(
        self, console: Console, opened: Callable[[Path], None], say: Catalogue = ENGLISH
    ) -> None:
        """Show on ``console`` in a language; ``opened`` is told the run file once it exists."""
        self._console = console
        self._opened = opened
        self._say = say
        self._glyphs = Glyphs.of(console.encoding)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._total = self._done = self._fresh = self._tokens = self._cached = 0
        self._counts: list[list[int]] = []
        self._modulus = 1
        self._toy = False
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def opened(self, about: About, path: Path) -> None:
        """Name the model, and say so if it is a toy."""
        self._opened(path)
        self._toy = about.toy
        name = clean(about.model or about.target)
        demo = f"   {self._say('terminal.demo')}" if about.toy else ""
        show(self._console, name + demo, "bold")

    def times(self) -> None:
        """Say why nothing happens for a while; a toy is timed in no time."""
        if not self._toy:
            show(self._console, self._say("progress.times"), "dim")

    def begins(self, stage: Stage) -> None:
        """Say what is about to be asked, and count from nothing."""
        self._total, self._modulus = stage.questions, stage.modulus
        self._done = self._fresh = 0
        self._counts = [[0, 0] for _ in range(self._modulus)]
        self._started = self._shown = time.monotonic()
        how = "begins-short" if stage.tokens is None else "begins"
        line = self._say(
            f"progress.{how}",
            rung=rung_name(stage.name, self._say),
            questions=stage.questions,
            prefills=stage.prefills,
            tokens=stage.tokens,
        )
        show(self._console, line, "dim")

    def ends(self, result: Result) -> None:
        """What a part of the run found, in one line."""
        say, rung = self._say, rung_name(result.stage.name, self._say)
        verdict, confirmation = result.verdict, result.confirmation
        if verdict is not None:
            name = say(f"verdict.name.{verdict.verdict}")
            mean = message("progress.mean", percent=100 * verdict.mean)
            found = say("progress.found", rung=rung, verdict=name, mean=mean, n=verdict.n)
            show(self._console, found)
        elif confirmation is not None:
            status = say(f"terminal.confirm.{confirmation.status}")
            show(self._console, say("progress.confirmed", rung=rung, status=status))

    def skips(self, skipped: Skipped) -> None:
        """A part that is left out, and why."""
        rung = rung_name(skipped.rung, self._say)
        show(self._console, clean(self._say("progress.skipped", rung=rung, why=skipped.why)))

    def answered(self, event: Event) -> None:
        """Count one answer and redraw if it is time."""
        self._done += 1
        if event.replayed:
            # Answers of an earlier sitting cost no time and say nothing about the time left.
            self._started = time.monotonic()
        self._fresh += not event.replayed
        self._tokens += event.prefilled + event.generated
        self._cached += event.cached
        if event.ask.arm in _SHOWN and event.correct >= 0:
            count = self._counts[event.ask.target % self._modulus]
            count[0] += 1
            count[1] += event.correct
        if event.replayed:
            return
        now = time.monotonic()
        live = self._live.is_started
        if now - self._shown < (_REFRESH if live else _LINE_EVERY):
            return
        self._shown = now
        if live:
            lines = (*self._curve(), Text(self._status()))
            self._live.update(Group(*lines), refresh=True)
        else:
            show(self._console, self._status())

    def _curve(self) -> list[Text]:
        if not any(n for n, _ in self._counts):
            return []
        points = [
            CurvePoint(r, n, k, k / n if n else 0.0, wilson(k, n) if n else (0.0, 1.0))
            for r, (n, k) in enumerate(self._counts)
        ]
        return curve_lines(points, self._modulus, self._glyphs, self._say)

    def _status(self) -> str:
        elapsed = time.monotonic() - self._started
        left = elapsed / self._fresh * (self._total - self._done) if self._fresh else 0.0
        asked, right = (sum(c[i] for c in self._counts) for i in (0, 1))
        mean = message("progress.mean", percent=100 * right / asked) if asked else ""
        return self._say(
            "progress.status",
            done=self._done,
            total=self._total,
            mean=mean,
            left=span(left),
            computed=self._tokens,
            cached=self._cached,
        )


def span(seconds: float) -> Message:
    """A time in the unit that suits it."""
    if seconds < 90:
        return message("progress.seconds", n=seconds)
    if seconds < 5400:
        return message("progress.minutes", n=seconds / 60)
    return message("progress.hours", n=seconds / 3600)
