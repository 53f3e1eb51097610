"""The charts as Vega-Lite descriptions, built with altair: shapes only, no words of their own.

Everything that came from a model or a server enters as data or as a literal title; field names and
expressions are fixed here. Accuracies are percent, effects percentage points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kvphase.report.theme import Theme, config, drawn_font
from kvphase.report.words import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

WIDE, NARROW = 820, 372
"""Widths of a figure in pixels: for a page beside which there is room, and for a telephone."""
Row = dict[str, Any]
_FEW = 24
"""Residues that still have room for large dots."""
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


def title_of(canvas: Canvas, titles: Titles) -> alt.TitleParams:
    """Heading and lines wrapped to the canvas."""
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

    chart = chart.properties(title=title_of(canvas, titles))
    if fit:
        chart = chart.properties(
            width=canvas.width, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
        )
    spec: dict[str, Any] = chart.to_dict(validate=False)
    spec["datasets"] = canvas.rows
    spec["config"] = config(canvas.theme, canvas.font)
    return spec


def residue_axis(canvas: Canvas, count: int, title: str, *, most: int | None = None) -> alt.X:
    """A quantitative axis of residues 0..count-1 with a label for as many as fit."""
    import altair as alt

    return alt.X(
        "residue",
        type="quantitative",
        scale=alt.Scale(domain=[-0.5, count - 0.5], nice=False),
        axis=alt.Axis(
            values=_labelled(count, most or canvas.pick(32, 16)),
            format="d",
            grid=False,
            title=title or None,
        ),
    )


def _labelled(count: int, most: int) -> list[int]:
    """The residues 0..count-1, or every second, fourth ... of them, so that ``most`` are left."""
    step = 1
    while count > step * most:
        step *= 2
    return list(range(0, count, step))


def accuracy_axis(title: str) -> alt.Y:
    """The accuracy axis: always the whole of it, so that pictures can be compared."""
    import altair as alt

    return alt.Y(
        "accuracy",
        type="quantitative",
        scale=alt.Scale(domain=[0, 100], nice=False),
        axis=alt.Axis(title=title or None, values=[0, 25, 50, 75, 100]),
    )


def kind_colour(canvas: Canvas) -> alt.Color:
    """The colour of the worst residue, of the best, and of all others."""
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
    x, y, theme = residue_axis(canvas, count, titles.x), accuracy_axis(titles.y), canvas.theme
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
    dots = base.mark_point(filled=True, opacity=1, size=95 if count <= _FEW else 40)
    low = alt.Y("low", type="quantitative")
    layers += [
        line.encode(y=y),
        bars.encode(y=low, y2="high", color=kind_colour(canvas)),
        dots.encode(y=y, color=kind_colour(canvas), shape=_shape()),
    ]
    if count <= canvas.pick(16, 8):
        style: dict[str, Any] = {
            "baseline": "bottom",
            "dy": -6,
            "fontSize": 11.5,
            "fontWeight": 500,
        }
        label = base.encode(
            y=alt.Y("high", type="quantitative"), text=alt.Text("label", type="nominal")
        )
        halo: dict[str, Any] = {"stroke": theme.panel, "strokeWidth": 4, "strokeJoin": "round"}
        layers += [
            label.mark_text(**style, **halo),
            label.mark_text(**style).encode(color=kind_colour(canvas)),
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
    base = alt.Chart(canvas.data(rows)).encode(x=x, y=accuracy_axis(titles.y))
    span = alt.Chart(canvas.data(_spans(rows))).mark_rule(color=theme.soft, strokeWidth=3)
    low = alt.Y("low", type="quantitative")
    layers = [
        span.encode(x=x, y=low, y2="high"),
        base.mark_point(filled=True, opacity=1, size=110).encode(color=colour, shape=shape),
    ]
    text = alt.Text("label", type="nominal")
    for name, dy in zip(names, (-6, 0, 6), strict=True):
        side: Literal["left", "right"] = "right" if dy == 0 else "left"
        labels = alt.Chart(canvas.data([row for row in rows if row["what"] == name]))
        mark = labels.mark_text(align=side, dx=-11 if dy == 0 else 11, dy=dy, fontSize=11.5)
        layers.append(mark.encode(x=x, y=accuracy_axis(titles.y), text=text, color=colour))
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
    values = _labelled(1 + max(row["residue"] for row in rows), canvas.pick(32, 12))
    axis = alt.Axis(labelAngle=0, title=titles.x, values=values)
    x = alt.X("residue", type="ordinal", axis=axis)
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
