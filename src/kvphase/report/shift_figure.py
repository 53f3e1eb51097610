"""The figure of a shift run: how probable or frequent the right answer is at each shift."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.probes.shift_columns import complete, level_of, measure_of, with_measures
from kvphase.report.charts import Titles, accuracy_axis, finish, kind_colour, residue_axis
from kvphase.report.tables import Figure, Table, ends, kind_of
from kvphase.report.words import percent
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Catalogue
    from kvphase.report.charts import Canvas, Row
    from kvphase.runs.shift import ShiftRun


def shift_figure(run: ShiftRun, model: str, say: Catalogue) -> Figure | None:
    """The mean over tasks and fillers at each shift; None with too few answers."""
    answers = run.answers
    tasks = with_measures(run.plan["tasks"], answers)
    count = complete(run.plan, answers)
    if not count:
        return None
    levels = [level_of(tasks, i, answers, Arm.SCREEN, count) for i in range(len(tasks))]
    level = np.mean(levels, axis=0)
    kinds = {measure_of(task) for task in tasks}
    kind = kinds.pop() if len(kinds) == 1 else "mixed"
    period = run.found.period
    # Colours mean something only where a period was found.
    slots = {slot.shifts[0]: slot.level for slot in run.found.slots} if period else {}
    worst, best = ends(slots)
    rows: list[Row] = [
        {
            "residue": shift,
            "accuracy": 100 * float(value),
            "kind": kind_of(shift % period if period else shift, worst, best),
        }
        for shift, value in enumerate(level)
    ]
    measure = say(f"shift.page.measure.{kind}")
    titles = Titles(
        say("shift.page.figure.heading", tasks=len(tasks)),
        (model, say("shift.page.figure.reading", measure=measure)),
        say("shift.page.column.shift"),
        measure,
    )
    low, high = int(np.argmin(level)), int(np.argmax(level))
    alt = say(
        "shift.page.figure.alt",
        shifts=count,
        low=percent(float(level[low])),
        low_at=low,
        high=percent(float(level[high])),
        high_at=high,
    )
    table = Table(
        say("shift.page.figure.table"),
        (say("shift.page.column.shift"), measure),
        tuple((str(shift), percent(float(value))) for shift, value in enumerate(level)),
    )
    return Figure("shifts", titles, alt, table, partial(_bars, rows=rows))


def _bars(canvas: Canvas, titles: Titles, rows: Sequence[Row]) -> dict[str, Any]:
    """A bar a shift."""
    import altair as alt

    count = len(rows)
    size = max(4, min(34, canvas.inner // (count + 2) * 0.6))
    base = alt.Chart(canvas.data(rows)).encode(
        x=residue_axis(canvas, count, titles.x), y=accuracy_axis(titles.y)
    )
    bars = base.mark_bar(size=size, cornerRadiusEnd=2).encode(color=kind_colour(canvas))
    return finish(bars.properties(height=canvas.pick(260, 210)), canvas, titles)


__all__ = ["shift_figure"]
