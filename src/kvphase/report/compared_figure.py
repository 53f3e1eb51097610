"""The compared runs' curves side by side, as SVG or PNG."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Catalogue, message
from kvphase.errors import UsageError
from kvphase.report import draw
from kvphase.report.charts import Titles
from kvphase.report.compared import length_name, run_names, standing_mark
from kvphase.report.files import write_aside
from kvphase.report.lines import clean
from kvphase.report.panels import models as side_by_side
from kvphase.report.tables import Figure, Table, ends, kind_of
from kvphase.report.theme import drawable
from kvphase.report.words import columns, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.catalogue import Language
    from kvphase.decide.compare import Comparison, Standing
    from kvphase.decide.compare import Table as Compared

_FOUND = ("phase-sensitive", "aperiodic")


@dataclass(frozen=True, slots=True)
class _Fonts:
    """What the drawing must know of its words."""

    wide: bool


def check_figure_path(path: Path, runs: Sequence[Path]) -> None:
    """Refuse a figure that could not be written, before anything is computed.

    Raises:
        UsageError: another ending, a folder, no such folder, or one of the runs.
    """
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(message("decide.figure.suffix", path=path))
    if path.is_dir():
        raise UsageError(message("report.is-a-folder", path=path))
    if not path.parent.is_dir():
        raise UsageError(message("report.no-folder", path=path))
    if path.exists() and any(run.exists() and path.samefile(run) for run in runs):
        raise UsageError(message("decide.figure.is-a-run", path=path))


def longest(found: Comparison) -> Compared:
    """The length that is drawn: the longest, where phase costs most."""
    return max(found.tables, key=lambda table: table.tokens or 0)


def write_figure(found: Comparison, path: Path, language: Language) -> None:
    """Draw the longest compared length into ``path``; an earlier figure is replaced as a whole.

    Raises:
        UsageError: it cannot be written.
    """
    say = Catalogue(drawable(language))
    figure = comparison_figure(found, longest(found), say)
    names = "".join((*run_names(found), *(clean(run.title) for run in found.runs)))
    wide = say.language == "zh" or columns(names) > len(names)
    drawing = draw.svg(figure, _Fonts(wide))
    content = draw.png(drawing) if path.suffix.lower() == ".png" else drawing.encode()
    write_aside(path, content)


def comparison_figure(found: Comparison, table: Compared, say: Catalogue) -> Figure:
    """One panel a run, best worst phase first, all on the same scale."""
    names = run_names(found)
    panels, rows = [], []
    for place, standing in enumerate(table.standings):
        worst = percent(standing.worst)
        run = found.runs[standing.run]
        about = [
            say("decide.figure.place", worst=worst, place=place + 1),
            say("decide.figure.mean", mean=percent(standing.mean), n=f"{standing.n:,}"),
        ]
        mark = standing_mark(standing, say)
        about += [mark] if mark else []
        about += [say("terminal.demo")] if run.toy else []
        panels.append(((shorten(names[standing.run], 40), *about), False, _rows(standing)))
        gap = "\N{EN DASH}" if standing.gap_pp is None else f"{standing.gap_pp:.1f}"
        name = names[standing.run]
        figures = (worst, percent(standing.mean), gap, f"{standing.n:,}")
        rows.append((str(place + 1), name, *figures))
    rung = length_name(table.rung, say)
    titles = Titles(
        say("decide.figure.heading", n=len(table.standings), rung=rung),
        (say("decide.figure.reading", modulus=table.modulus),),
    )
    order = ", ".join(names[standing.run] for standing in table.standings)
    heads = ("place", "run", "worst", "mean", "gap", "n")
    words = tuple(say(f"decide.column.{head}") for head in heads)
    return Figure(
        "compare",
        titles,
        say("decide.figure.alt", n=len(table.standings), order=order),
        Table(say("decide.figure.table"), words, tuple(rows)),
        partial(side_by_side, panels=panels),
    )


def _rows(standing: Standing) -> list[dict[str, Any]]:
    """Bars with their intervals; extremes are told apart only where something was found."""
    rates = {point.residue: point.accuracy for point in standing.curve}
    worst, best = ends(rates if standing.verdict in _FOUND else {})
    return [
        {
            "residue": point.residue,
            "accuracy": 100 * point.accuracy,
            "low": 100 * point.ci95[0],
            "high": 100 * point.ci95[1],
            "kind": kind_of(point.residue, worst, best),
        }
        for point in standing.curve
    ]
