"""The charts as Vega-Lite descriptions, built with altair: shapes only, no words of their own.

Everything that came from a model or a server enters as data or as a literal title; field names and
expressions are fixed here. Accuracies are percent, effects percentage points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kvphase.report.theme import Theme, config, drawn_font
from kvphase.report.words import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

WIDE, NARROW = 820, 372
"""Widths of a figure in pixels: for a page beside which there is room, and for a telephone."""
Row = dict[str, Any]
_KINDS = ("worst", "best", "other")


@dataclass(frozen=True, slots=True)
class Canvas:
    """What a chart is drawn on."""

    theme: Theme
    width: int
    font: str = field(default_factory=partial(drawn_font, chinese=False))
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Data of the chart being made, by name; see ``data``."""

    @property
    def narrow(self) -> bool:
        """Whether panels go below each other and labels are thinned out."""
        return self.width < 600

    @property
    def inner(self) -> int:
        """Pixels between the paddings."""
        return self.width - 28

    def pick(self, wide: int, narrow: int) -> int:
        """One of two sizes."""
        return narrow if self.narrow else wide

    def data(self, rows: Sequence[Row]) -> alt.NamedData:
        """A reference to ``rows``, which ``finish`` puts into the description once.

        altair would copy them again with every layer and property.
        """
        import altair as alt

        name = f"rows{len(self.rows)}"
        self.rows[name] = list(rows)
        return alt.NamedData(name=name)

    @property
    def kinds(self) -> list[str]:
        """Colours of ``_KINDS``."""
        return [self.theme.worst, self.theme.best, self.theme.data]


@dataclass(frozen=True, slots=True)
class Titles:
    """The words of a chart."""

    heading: str
    lines: tuple[str, ...]
    """Below the heading: settings, how to read it."""
    x: str = ""
    y: str = ""


def _title(canvas: Canvas, titles: Titles) -> alt.TitleParams:
    import altair as alt

    lines: list[str] = []
    for line in titles.lines:
        lines += wrap(line, canvas.inner * 10 // 63, lines=3)
    return alt.TitleParams(
        text=wrap(titles.heading, canvas.inner * 10 // 84, lines=3), subtitle=lines
    )


def finish(chart: Any, canvas: Canvas, titles: Titles, *, fit: bool = True) -> dict[str, Any]:  # noqa: ANN401 - altair's charts share no public base
    """The chart with title and theme as a Vega-Lite specification."""
    import altair as alt

    chart = chart.properties(title=_title(canvas, titles))
    if fit:
        chart = chart.properties(
            width=canvas.width, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
        )
    spec: dict[str, Any] = chart.to_dict(validate=False)
    spec["datasets"] = canvas.rows
    spec["config"] = config(canvas.theme, canvas.font)
    return spec


def _residues(canvas: Canvas, count: int, title: str, *, most: int | None = None) -> alt.X:
    """A quantitative axis of residues 0..count-1 with a label for as many as fit."""
    import altair as alt

    most = most or canvas.pick(32, 16)
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256) if count <= s * most)
    return alt.X(
        "residue",
        type="quantitative",
        scale=alt.Scale(domain=[-0.5, count - 0.5], nice=False),
        axis=alt.Axis(
            values=list(range(0, count, step)), format="d", grid=False, title=title or None
        ),
    )


def _percent(title: str) -> alt.Y:
    """The accuracy axis: always the whole of it, so that pictures can be compared."""
    import altair as alt

    return alt.Y(
        "accuracy",
        type="quantitative",
        scale=alt.Scale(domain=[0, 100], nice=False),
        axis=alt.Axis(title=title or None, values=[0, 25, 50, 75, 100]),
    )


def _kind(canvas: Canvas) -> alt.Color:
    import altair as alt

    return alt.Color(
        "kind",
        type="nominal",
        scale=alt.Scale(domain=list(_KINDS), range=canvas.kinds),
        legend=None,
    )


def curve(
    canvas: Canvas,
    titles: Titles,
    rows: Sequence[Row],
    *,
    mean: float | None,
    period: int | None = None,
    behind: Sequence[Row] = (),
) -> dict[str, Any]:
    """Accuracy by residue: dots with intervals, the mean dashed, cycles of the period shaded.

    Args:
        canvas: Colours and width.
        titles: Words.
        rows: ``residue, accuracy, low, high, kind, label``; every residue once.
        mean: Mean accuracy in percent; None draws no line.
        period: Shade every other cycle of this many residues; None shades nothing.
        behind: Fainter dots, ``residue, accuracy``.
    """
    import altair as alt

    count = len(rows)
    x, y, theme = _residues(canvas, count, titles.x), _percent(titles.y), canvas.theme
    layers: list[Any] = []
    if period and period < count:
        cycles = [
            {"residue": start - 0.5, "end": min(start + period, count) - 0.5}
            for start in range(period, count, 2 * period)
        ]
        band = alt.Chart(canvas.data(cycles)).mark_rect(color=theme.ink, opacity=0.05)
        layers.append(band.encode(x=x, x2="end"))
    if mean is not None:
        rule = alt.Chart(canvas.data([{"accuracy": mean}]))
        layers.append(
            rule.mark_rule(color=theme.muted, strokeDash=[5, 4], strokeWidth=1.4).encode(y=y)
        )
    if behind:
        dots = alt.Chart(canvas.data(behind)).mark_point(size=34, color=theme.soft, strokeWidth=1.3)
        layers.append(dots.encode(x=x, y=y))
    base = alt.Chart(canvas.data(rows)).encode(x=x)
    line = base.mark_line(color=theme.soft, strokeWidth=1.6)
    bars = base.mark_rule(strokeWidth=2.2)
    dots = base.mark_point(filled=True, opacity=1, size=95)
    low = alt.Y("low", type="quantitative")
    layers += [
        line.encode(y=y),
        bars.encode(y=low, y2="high", color=_kind(canvas)),
        dots.encode(y=y, color=_kind(canvas), shape=_shape()),
    ]
    if count <= canvas.pick(16, 8):
        style = {"baseline": "bottom", "dy": -6, "fontSize": 11.5, "fontWeight": 500}
        label = base.encode(
            y=alt.Y("high", type="quantitative"), text=alt.Text("label", type="nominal")
        )
        halo = {"stroke": theme.panel, "strokeWidth": 4, "strokeJoin": "round"}
        layers += [
            label.mark_text(**style, **halo),
            label.mark_text(**style).encode(color=_kind(canvas)),
        ]
    chart = alt.layer(*layers).properties(height=canvas.pick(300, 250))
    return finish(chart, canvas, titles)


def _shape() -> alt.Shape:
    import altair as alt

    shapes = ["triangle-down", "triangle-up", "circle"]
    return alt.Shape(
        "kind", type="nominal", scale=alt.Scale(domain=list(_KINDS), range=shapes), legend=None
    )


def lengths(
    canvas: Canvas, titles: Titles, rows: Sequence[Row], names: tuple[str, str, str]
) -> dict[str, Any]:
    """Mean, worst and best residue of every rung.

    Args:
        canvas: Colours and width.
        titles: Words.
        rows: ``rung, accuracy, label, what``; ``what`` is one of ``names``.
        names: What the best, mean and worst residue are called, in this order.
    """
    import altair as alt

    order = list(dict.fromkeys(row["rung"] for row in rows))
    axis = alt.Axis(labelAngle=0, labelLimit=110, title=titles.x, grid=False)
    x = alt.X("rung", type="nominal", sort=order, axis=axis, scale=alt.Scale(paddingOuter=0.25))
    theme = canvas.theme
    scale = alt.Scale(domain=list(names), range=[theme.best, theme.data, theme.worst])
    legend = alt.Legend(orient="top", title=None)
    colour = alt.Color("what", type="nominal", scale=scale, legend=legend)
    shape = alt.Shape(
        "what",
        type="nominal",
        scale=alt.Scale(domain=list(names), range=["triangle-up", "circle", "triangle-down"]),
        legend=legend,
    )
    base = alt.Chart(canvas.data(rows)).encode(x=x, y=_percent(titles.y))
    span = alt.Chart(canvas.data(_spans(rows))).mark_rule(color=theme.soft, strokeWidth=3)
    low = alt.Y("low", type="quantitative")
    layers = [
        span.encode(x=x, y=low, y2="high"),
        base.mark_point(filled=True, opacity=1, size=110).encode(color=colour, shape=shape),
    ]
    text = alt.Text("label", type="nominal")
    for name, dy in zip(names, (-6, 0, 6), strict=True):
        side = "right" if dy == 0 else "left"
        labels = alt.Chart(canvas.data([row for row in rows if row["what"] == name]))
        mark = labels.mark_text(align=side, dx=-11 if dy == 0 else 11, dy=dy, fontSize=11.5)
        layers.append(mark.encode(x=x, y=_percent(titles.y), text=text, color=colour))
    chart = alt.layer(*layers).properties(height=canvas.pick(280, 250))
    return finish(chart, canvas, titles)


def _spans(rows: Sequence[Row]) -> list[Row]:
    """Lowest and highest accuracy of every rung."""
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row["rung"], []).append(row["accuracy"])
    return [{"rung": rung, "low": min(v), "high": max(v)} for rung, v in values.items()]


def heat(
    canvas: Canvas, titles: Titles, rows: Sequence[Row], *, depths: Sequence[str], legend: str
) -> dict[str, Any]:
    """Depth against residue: deviation of each cell from the mean, with its accuracy written in.

    Args:
        canvas: Colours and width.
        titles: Words.
        rows: ``residue, depth, deviation, label, edge``; ``edge`` where the colour is strong.
        depths: The names of all depths, from the start of the prompt to its end.
        legend: What the colour means.
    """
    import altair as alt

    theme = canvas.theme
    most = max(5.0, *(abs(row["deviation"]) for row in rows))
    x = alt.X("residue", type="ordinal", axis=alt.Axis(labelAngle=0, title=titles.x))
    y = alt.Y("depth", type="nominal", sort=list(depths), axis=alt.Axis(title=titles.y))
    stops = [most * (i / 3 - 1) for i in range(7)]
    colour = alt.Color(
        "deviation",
        type="quantitative",
        scale=alt.Scale(domain=stops, range=list(theme.heat), interpolate="rgb"),
        legend=alt.Legend(
            orient="bottom",
            title=legend,
            gradientLength=canvas.pick(260, 200),
            gradientThickness=10,
            titleLimit=canvas.inner - 10,
            format="+.0f",
        ),
    )
    base = alt.Chart(canvas.data(rows)).encode(x=x, y=y)
    layers = [base.mark_rect(stroke=theme.panel, strokeWidth=2).encode(color=colour)]
    if len({row["residue"] for row in rows}) <= canvas.pick(24, 8):
        strong, weak = ("#ffffff", "#17202c") if theme.shade == "light" else ("#10151c", "#ffffff")
        ink = alt.Scale(domain=["strong", "weak"], range=[strong, weak])
        layers.append(
            base.mark_text(fontSize=11.5).encode(
                text=alt.Text("label", type="nominal"),
                color=alt.Color("edge", type="nominal", scale=ink, legend=None),
            )
        )
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return finish(chart.properties(height=40 + 28 * len(depths)), canvas, titles)


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
        base = alt.Chart(canvas.data(rows)).encode(x=_residues(canvas, len(rows), x_title, most=12))
        zero = alt.Chart(canvas.data([{"effect": 0}])).mark_rule(color=canvas.theme.muted)
        bars = base.mark_bar(size=min(34, width // (len(rows) + 1) * 0.6), cornerRadius=2)
        layers = [bars.encode(y=y, color=_kind(canvas)), zero.encode(y=y)]
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
    x = _residues(canvas, len(rows), titles.x)
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
        x = _residues(canvas, len(rows), titles.x, most=8)
        base = alt.Chart(canvas.data(rows)).encode(x=x)
        bars = base.mark_bar(size=max(1, width / len(rows) * 0.7), cornerRadiusEnd=2)
        colour = _kind(canvas)
        low = alt.Y("low", type="quantitative")
        rule = base.mark_rule(color=canvas.theme.ink, strokeWidth=1)
        chart = alt.layer(bars.encode(y=_percent(""), color=colour), rule.encode(y=low, y2="high"))
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
