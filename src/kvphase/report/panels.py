"""More charts, as ``charts``: effects of a confirmation, its control, and models side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvphase.report.charts import accuracy_axis, finish, kind_colour, residue_axis
from kvphase.report.words import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.report.charts import Canvas, Row, Titles


def effects(
    canvas: Canvas, titles: Titles, panels: Sequence[tuple[str, str, Sequence[Row]]]
) -> dict[str, Any]:
    """Adjusted effect by residue, one panel a factor, on one scale.

    Args:
        canvas: Colours and width.
        titles: Words; the y title stands at the first panel.
        panels: Heading, x title and rows ``residue, effect, kind, label`` of each factor.
    """
    import altair as alt

    most = 1.25 * max(2.0, *(abs(row["effect"]) for _, _, rows in panels for row in rows))
    width = canvas.inner - 60 if canvas.narrow else (canvas.inner - 150) // len(panels)
    charts = []
    for i, (heading, x_title, rows) in enumerate(panels):
        y = alt.Y(
            "effect",
            type="quantitative",
            scale=alt.Scale(domain=[-most, most], nice=False),
            axis=alt.Axis(title=titles.y if canvas.narrow or not i else None, tickCount=5),
        )
        base = alt.Chart(canvas.data(rows)).encode(
            x=residue_axis(canvas, len(rows), x_title, most=12)
        )
        zero = alt.Chart(canvas.data([{"effect": 0}])).mark_rule(color=canvas.theme.muted)
        bars = base.mark_bar(size=min(34, width // (len(rows) + 1) * 0.6), cornerRadius=2)
        layers = [bars.encode(y=y, color=kind_colour(canvas)), zero.encode(y=y)]
        for up, sign in ((True, 1), (False, -1)):
            some = [row for row in rows if (row["effect"] >= 0) == up]
            text = alt.Chart(canvas.data(some)).mark_text(
                dy=-8 * sign, fontSize=11.5, color=canvas.theme.ink
            )
            layers.append(
                text.encode(x=base.encoding.x, y=y, text=alt.Text("label", type="nominal"))
            )
        small = alt.TitleParams(
            text=wrap(heading, width * 10 // 70, lines=2),
            fontSize=13,
            frame="group",
            offset=8,
            lineHeight=16,
        )
        charts.append(
            alt.layer(*layers).properties(width=width, height=canvas.pick(190, 140), title=small)
        )
    together = alt.vconcat(*charts) if canvas.narrow else alt.hconcat(*charts)
    return finish(together, canvas, titles, fit=False)


def deviation(canvas: Canvas, titles: Titles, rows: Sequence[Row], margin: float) -> dict[str, Any]:
    """Deviation from the mean with intervals, over the band that counts as flat.

    Args:
        canvas: Colours and width.
        titles: Words.
        rows: ``residue, effect, low, high``.
        margin: Half the height of the band, percentage points.
    """
    import altair as alt

    theme = canvas.theme
    most = max(1.5 * margin, 1.1 * max(max(-row["low"], row["high"]) for row in rows))
    scale = alt.Scale(domain=[-most, most], nice=False)
    y = alt.Y(
        "effect", type="quantitative", scale=scale, axis=alt.Axis(title=titles.y, tickCount=5)
    )
    x = residue_axis(canvas, len(rows), titles.x)
    band = alt.Chart(canvas.data([{"low": -margin, "high": margin}])).mark_rect(
        color=theme.best, opacity=0.14
    )
    base = alt.Chart(canvas.data(rows)).encode(x=x)
    low = alt.Y("low", type="quantitative", scale=scale)
    zero = alt.Chart(canvas.data([{"effect": 0}])).mark_rule(color=theme.muted)
    layers = [
        band.encode(y=low, y2="high"),
        zero.encode(y=y),
        base.mark_rule(color=theme.data, strokeWidth=2.2).encode(y=low, y2="high"),
        base.mark_point(filled=True, opacity=1, size=95, color=theme.data).encode(y=y),
    ]
    chart = alt.layer(*layers).properties(height=canvas.pick(220, 210))
    return finish(chart, canvas, titles)


def models(
    canvas: Canvas, titles: Titles, panels: Sequence[tuple[tuple[str, ...], bool, Sequence[Row]]]
) -> dict[str, Any]:
    """One small curve a model, all on the same scale; the reader's own is marked.

    Args:
        canvas: Colours and width.
        titles: Words.
        panels: Lines of the heading, whether it is the reader's own, and rows as for ``curve``.
    """
    import altair as alt

    across = canvas.pick(3, 2)
    width = (canvas.inner - across * 34 - (across - 1) * 18) // across
    charts = []
    headings = _level([heading for heading, _, _ in panels], width)
    for (names, about), (_, own, rows) in zip(headings, panels, strict=True):
        x = residue_axis(canvas, len(rows), titles.x, most=8)
        base = alt.Chart(canvas.data(rows)).encode(x=x)
        bars = base.mark_bar(size=max(1, width / len(rows) * 0.7), cornerRadiusEnd=2)
        colour = kind_colour(canvas)
        low = alt.Y("low", type="quantitative")
        rule = base.mark_rule(color=canvas.theme.ink, strokeWidth=1)
        chart = alt.layer(
            bars.encode(y=accuracy_axis(""), color=colour), rule.encode(y=low, y2="high")
        )
        small = alt.TitleParams(
            text=names,
            subtitle=about,
            fontSize=12.5,
            lineHeight=15,
            subtitleFontSize=11,
            subtitleLineHeight=14,
            frame="group",
            offset=8,
            color=canvas.theme.best if own else canvas.theme.ink,
        )
        charts.append(chart.properties(width=width, height=canvas.pick(130, 110), title=small))
    together = alt.concat(*charts, columns=across, spacing=18)
    return finish(together, canvas, titles, fit=False)


def _level(headings: Sequence[tuple[str, ...]], width: int) -> list[tuple[list[str], list[str]]]:
    """Name and further lines of every panel, wrapped, all of them equally tall."""
    wrapped = [
        (
            wrap(first, width * 10 // 70, lines=3),
            [part for line in more for part in wrap(line, width * 10 // 56, lines=2)],
        )
        for first, *more in headings
    ]
    tall = max(len(names) for names, _ in wrapped)
    deep = max(len(about) for _, about in wrapped)
    return [
        (names + [" "] * (tall - len(names)), about + [" "] * (deep - len(about)))
        for names, about in wrapped
    ]
