"""What a figure is besides its drawing, and the tables that say the same in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvphase.report.words import percent
from kvphase.stats.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvphase.report.charts import Canvas, Titles
    from kvphase.report.facts import Count
    from kvphase.report.words import Words
    from kvphase.schema import PointJson


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text; the first column heads its row."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its words, its numbers, and how to draw it."""

    name: str
    titles: Titles
    alt: str
    """One or two sentences for readers who do not see it."""
    table: Table
    draw: Callable[..., dict[str, Any]]
    blends: bool = False
    """Colours between those of the theme are in it, so that each theme is drawn by itself."""

    def spec(self, canvas: Canvas) -> dict[str, Any]:
        """The Vega-Lite specification on this canvas."""
        return self.draw(canvas, self.titles)


def ends(rates: Mapping[int, float]) -> tuple[int | None, int | None]:
    """The residues of the lowest and of the highest rate; none where all are equal."""
    if len(set(rates.values())) < 2:
        return None, None
    return min(rates, key=lambda r: rates[r]), max(rates, key=lambda r: rates[r])


def kind_of(residue: int, worst: int | None, best: int | None) -> str:
    """``worst``, ``best`` or ``other``."""
    return {worst: "worst", best: "best"}.get(residue, "other")


def points_table(
    words: Words, curve: Sequence[PointJson] | Sequence[Count], *, modulus: int | None = None
) -> Table:
    """Counts, accuracy and 95% interval by residue."""
    say = words.say
    rows = []
    for point in curve:
        if not point.n:
            rows.append((str(point.residue), "0", *("\N{EN DASH}",) * 3))
            continue
        low, high = wilson(point.correct, point.n)
        rate = percent(point.correct / point.n)
        interval = f"{100 * low:.1f}\N{EN DASH}{100 * high:.1f}%"
        rows.append((str(point.residue), f"{point.n:,}", f"{point.correct:,}", rate, interval))
    heads = ("residue", "n", "correct", "accuracy", "interval")
    caption = say("figure.points.table", modulus=modulus or words.document.modulus)
    return Table(caption, tuple(say(f"figure.column.{head}") for head in heads), tuple(rows))
