"""Progress on stderr: the curve so far, time left and tokens spent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from kvphase.report.terminal import DEMO, Glyphs, clean, curve_lines
from kvphase.stats import wilson
from kvphase.types import Arm, CurvePoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console

    from kvphase.probes.needle import NeedlePlan
    from kvphase.runs.execute import Event
    from kvphase.types import About

_REFRESH = 0.25
"""Seconds between redraws on a terminal."""
_LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """A live display on a terminal, a line now and then elsewhere. Use as a context manager."""

    def __init__(self, console: Console, opened: Callable[[Path], None]) -> None:
        """Show on ``console``; ``opened`` is told the run file once it exists."""
        self._console = console
        self._opened = opened
        self._glyphs = Glyphs.of(console.encoding)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._total = self._done = self._fresh = self._tokens = self._cached = 0
        self._counts: list[list[int]] = []
        self._modulus = 1
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

    def planned(self, plan: NeedlePlan, about: About, path: Path) -> None:
        """Say what is about to be asked."""
        self._opened(path)
        self._total, self._modulus = plan.questions, plan.design.modulus
        self._counts = [[0, 0] for _ in range(self._modulus)]
        self._started = self._shown = time.monotonic()
        name = clean(about.model or about.target)
        if about.toy:
            self._console.print(Text(DEMO, style="bold"))
        self._console.print(
            Text(
                f"{name}: {plan.design.screen:,} questions on {len(plan.layouts)} contexts of "
                f"{plan.design.context_tokens:,} tokens, "
                f"{self._total - plan.design.screen:,} more for the audit"
            )
        )

    def answered(self, event: Event) -> None:
        """Count one answer and redraw if it is time."""
        self._done += 1
        if event.replayed:
            # Answers of an earlier sitting cost no time and say nothing about the time left.
            self._started = time.monotonic()
        self._fresh += not event.replayed
        self._tokens += event.prefilled + event.generated
        self._cached += event.cached
        if event.ask.arm is Arm.SCREEN and event.correct >= 0:
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
            self._live.update(Group(*self._curve(), self._status()), refresh=True)
        else:
            self._console.print(self._status())

    def _curve(self) -> list[Text]:
        points = [
            CurvePoint(r, n, k, k / n if n else 0.0, wilson(k, n) if n else (0.0, 1.0))
            for r, (n, k) in enumerate(self._counts)
        ]
        return curve_lines(points, self._modulus, self._glyphs)

    def _status(self) -> Text:
        elapsed = time.monotonic() - self._started
        left = elapsed / self._fresh * (self._total - self._done) if self._fresh else 0.0
        asked, right = (sum(c[i] for c in self._counts) for i in (0, 1))
        mean = f"mean {100 * right / asked:.1f}%, " if asked else ""
        return Text(
            f"{self._done:,} of {self._total:,}, {mean}{_span(left)} left; "
            f"tokens: {self._tokens:,} computed, {self._cached:,} cached"
        )


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
