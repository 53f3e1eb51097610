"""The figures of a run: what each shows, in words, as a table and as a chart description."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kvphase.report import charts, panels
from kvphase.report.charts import Titles
from kvphase.report.published import published
from kvphase.report.tables import Figure, Table, ends, kind_of, points_table
from kvphase.report.words import percent, points, shorten, signed, span
from kvphase.stats.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.report.facts import Count, PageFacts
    from kvphase.report.words import Words
    from kvphase.schema import FactorJson, PointJson

Row = dict[str, Any]
Maker = Callable[["Words", "PageFacts"], Figure | None]
NAMES = ("curve", "folded", "lengths", "depth", "confirm", "tail", "published")
_NAME = 44
"""Columns of a model's name in a heading."""


def figures(words: Words, facts: PageFacts) -> dict[str, Figure]:
    """Every figure that this run has data for, by name, in the order of the page."""
    makers: tuple[Maker, ...] = (curve, folded, lengths, depth, confirm, tail, published)
    made = (maker(words, facts) for maker in makers)
    return {figure.name: figure for figure in made if figure is not None}


def _titles(words: Words, name: str, *, reading: str, x: str = "", y: str = "") -> Titles:
    """Heading with the model's name, then settings, how to read it, and the demo's mark."""
    document = words.document
    values = {
        "model": shorten(words.model, _NAME),
        "modulus": document.modulus,
        "period": document.period,
    }
    lines = [words.settings(), reading]
    if document.demo:
        lines.append(words.say("terminal.demo"))
    return Titles(words.say(f"figure.{name}.heading", **values), tuple(lines), x, y)


def _rows(curve: Sequence[PointJson] | Sequence[Count], *, found: bool) -> list[Row]:
    """Rows of a chart for points or counts; residues that were not asked are left out.

    Best and worst residue are told apart only where something was ``found``.
    """
    rates = {point.residue: point.correct / point.n for point in curve if point.n}
    worst, best = ends(rates if found else {})
    rows = []
    for point in curve:
        if point.n:
            low, high = wilson(point.correct, point.n)
            rate = 100 * rates[point.residue]
            rows.append(
                {
                    "residue": point.residue,
                    "accuracy": rate,
                    "low": 100 * low,
                    "high": 100 * high,
                    "label": f"{rate:.0f}",
                    "kind": kind_of(point.residue, worst, best),
                }
            )
    return rows


def curve(words: Words, facts: PageFacts) -> Figure | None:
    """Accuracy by residue with 95% intervals."""
    del facts
    document, say = words.document, words.say
    if not any(point.n for point in document.curve):
        return None
    period = document.period
    reading = say("figure.curve.reading", mean=percent(document.mean))
    if words.found:
        reading += say("figure.curve.ends")
    if period and period < len(document.curve):
        reading += say("figure.curve.shaded", period=period)
    x = say("figure.axis.residue", modulus=document.modulus)
    titles = _titles(words, "curve", reading=reading, x=x, y=say("figure.axis.accuracy"))
    alt = say(
        "figure.curve.alt",
        modulus=document.modulus,
        mean=percent(document.mean),
        worst=words.phase(document.worst),
        best=words.phase(document.best),
    )
    rows = _rows(document.curve, found=words.found)
    draw = partial(charts.curve, rows=rows, mean=100 * document.mean, period=period)
    return Figure("curve", titles, alt, points_table(words, document.curve), draw)


def folded(words: Words, facts: PageFacts) -> Figure | None:
    """The curve folded by the period, single cycles behind it."""
    from kvphase.report.facts import Count

    document, say = words.document, words.say
    period = document.period
    if period is None:
        return None
    whole = period <= document.modulus and document.modulus % period == 0
    counts = list(facts.folded)
    if whole:
        sums = [[p for p in document.curve if p.residue % period == r] for r in range(period)]
        counts = [
            Count(r, sum(p.n for p in ps), sum(p.correct for p in ps)) for r, ps in enumerate(sums)
        ]
    if not any(count.n for count in counts):
        return None
    behind = [
        {"residue": p.residue % period + _beside(p.residue // period), "accuracy": 100 * p.accuracy}
        for p in document.curve
        if whole and p.n and period < document.modulus
    ]
    reading = say("figure.folded.reading", mean=percent(document.mean))
    if behind:
        reading += say("figure.folded.cycles", cycles=document.modulus // period)
    x = say("figure.axis.residue", modulus=period)
    titles = _titles(words, "folded", reading=reading, x=x, y=say("figure.axis.accuracy"))
    rows = _rows(counts, found=words.found)
    worst = min(rows, key=lambda row: row["accuracy"])
    best = max(rows, key=lambda row: row["accuracy"])
    alt = say(
        "figure.folded.alt",
        period=period,
        worst=f"{worst['accuracy']:.1f}% @ {worst['residue']}",
        best=f"{best['accuracy']:.1f}% @ {best['residue']}",
    )
    draw = partial(charts.curve, rows=rows, mean=100 * document.mean, behind=behind)
    return Figure("folded", titles, alt, points_table(words, counts, modulus=period), draw)


def _beside(cycle: int) -> float:
    """Where a single cycle's dot stands beside the pooled one, in residues."""
    return 0.1 + 0.05 * min(cycle, 7)


def lengths(words: Words, facts: PageFacts) -> Figure | None:
    """Mean, worst and best residue of every rung; nothing for results that were not asked."""
    del facts
    document, say = words.document, words.say
    if not document.per_length or document.rung == "imported":
        return None
    names = (say("figure.best"), say("figure.mean"), say("figure.worst"))
    rows: list[Row] = []
    for length in document.per_length:
        rung = f"{length.context_tokens:,}" if length.context_tokens else words.rung(length.rung)
        values = (length.best, length.mean, length.worst)
        for name, value in zip(names, values, strict=True):
            if value is not None:
                rate = 100 * (value if isinstance(value, float) else value.accuracy)
                row = {"rung": rung, "accuracy": rate, "label": f"{rate:.0f}", "what": name}
                rows.append(row)
    titles = _titles(
        words,
        "lengths",
        reading=say("figure.lengths.reading"),
        x=say("figure.axis.length"),
        y=say("figure.axis.accuracy"),
    )
    alt = say("figure.lengths.alt", rungs=len(document.per_length))
    draw = partial(charts.lengths, rows=rows, names=names)
    return Figure("lengths", titles, alt, _lengths_table(words), draw)


def _lengths_table(words: Words) -> Table:
    say = words.say
    rows = tuple(
        (
            words.rung(length.rung),
            words.verdict(length.verdict),
            percent(length.mean),
            words.phase(length.worst),
            words.phase(length.best),
            points(length.gap.raw_pp),
            points(length.gap.null_pp),
            str(length.period or "\N{EN DASH}"),
            f"{length.n:,}",
        )
        for length in words.document.per_length
    )
    heads = ("length", "verdict", "mean", "worst", "best", "gap", "chance", "period", "n")
    return Table(
        say("figure.lengths.table"), tuple(say(f"figure.column.{head}") for head in heads), rows
    )


def depth(words: Words, facts: PageFacts) -> Figure | None:
    """Depth in the prompt against residue, from the answers of the verdict's rung."""
    say = words.say
    if not facts.depth:
        return None
    mean = sum(c.correct for c in facts.depth) / sum(c.n for c in facts.depth)
    names = [f"{100 * low:.0f}\N{EN DASH}{100 * high:.0f}%" for low, high in pairwise(facts.edges)]
    most = max(5.0, *(100 * abs(c.correct / c.n - mean) for c in facts.depth))
    rows = [
        {
            "residue": c.residue,
            "depth": names[c.depth],
            "deviation": 100 * (c.correct / c.n - mean),
            "label": f"{100 * c.correct / c.n:.0f}",
            "edge": "strong" if 100 * abs(c.correct / c.n - mean) > 0.55 * most else "weak",
        }
        for c in facts.depth
    ]
    used = [name for name in names if any(row["depth"] == name for row in rows)]
    reading = say("figure.depth.reading", n=span(c.n for c in facts.depth))
    titles = _titles(
        words,
        "depth",
        reading=reading,
        x=say("figure.axis.residue", modulus=words.document.modulus),
        y=say("figure.axis.depth"),
    )
    legend = say("figure.depth.legend", mean=percent(mean))
    draw = partial(charts.heat, rows=rows, depths=used, legend=legend)
    alt = say("figure.depth.alt", bins=len(names), modulus=words.document.modulus)
    table = _depth_table(words, facts, names)
    return Figure("depth", titles, alt, table, draw, blends=True)


def _depth_table(words: Words, facts: PageFacts, names: Sequence[str]) -> Table:
    """Accuracy and count by depth (rows) and residue (columns)."""
    say, modulus = words.say, words.document.modulus
    cells = {(c.depth, c.residue): f"{100 * c.correct / c.n:.0f}% ({c.n})" for c in facts.depth}
    rows = tuple(
        (name, *(cells.get((i, r), "\N{EN DASH}") for r in range(modulus)))
        for i, name in enumerate(names)
    )
    heads = (say("figure.column.depth"), *(str(r) for r in range(modulus)))
    return Table(say("figure.depth.table"), heads, rows)


def confirm(words: Words, facts: PageFacts) -> Figure | None:
    """Adjusted effect of target, question and distance by residue."""
    del facts
    found, say = words.document.confirm, words.say
    factors = [f for f in found.factors if f.effect_pp] if found else []
    if found is None or not factors:
        return None
    shown = []
    for factor in factors:
        found_here = factor.p_value is not None and factor.p_value <= words.document.alpha
        worst, best = ends(dict(enumerate(factor.effect_pp)) if found_here else {})
        rows = [
            {
                "residue": r,
                "effect": effect,
                "kind": kind_of(r, worst, best),
                "label": signed(effect),
            }
            for r, effect in enumerate(factor.effect_pp)
        ]
        x = say("figure.axis.modulo", modulus=found.period)
        shown.append((_factor_heading(words, factor), x, rows))
    titles = _titles(
        words,
        "confirm",
        reading=say("figure.confirm.reading"),
        y=say("figure.axis.effect"),
    )
    draw = partial(panels.effects, panels=shown)
    alt = say("figure.confirm.alt", period=found.period)
    return Figure("confirm", titles, alt, _factors_table(words, found.factors), draw)


def _factor_heading(words: Words, factor: FactorJson) -> str:
    name = words.say(f"figure.factor.{factor.name}")
    return name if factor.p_value is None else f"{name}, p = {factor.p_value:.2g}"


def _factors_table(words: Words, factors: Sequence[FactorJson]) -> Table:
    say = words.say
    residues = max(len(factor.effect_pp) for factor in factors)
    rows = tuple(
        (
            say(f"figure.factor.{factor.name}"),
            "\N{EN DASH}" if factor.p_value is None else f"{factor.p_value:.2g}",
            points(factor.gap_pp),
            points(factor.mde_pp),
            *(signed(effect) for effect in factor.effect_pp),
            *("\N{EN DASH}",) * (residues - len(factor.effect_pp)),
        )
        for factor in factors
    )
    heads = tuple(say(f"figure.column.{head}") for head in ("factor", "p", "gap", "mde"))
    at = tuple(say("figure.column.at", residue=r) for r in range(residues))
    return Table(say("figure.confirm.table"), (*heads, *at), rows)


def tail(words: Words, facts: PageFacts) -> Figure | None:
    """Filler only after the target: deviation from the mean within the margin's band."""
    del facts
    found, say = words.document.confirm, words.say
    if found is None or found.tail is None or not any(p.n for p in found.tail.curve):
        return None
    asked = [p for p in found.tail.curve if p.n]
    mean = sum(p.correct for p in asked) / sum(p.n for p in asked)
    rows = [
        {
            "residue": p.residue,
            "effect": 100 * (p.accuracy - mean),
            "low": 100 * (p.ci95[0] - mean),
            "high": 100 * (p.ci95[1] - mean),
        }
        for p in asked
    ]
    margin = found.tail.margin_pp
    titles = _titles(
        words,
        "tail",
        reading=say("figure.tail.reading", margin=f"{margin:.1f}"),
        x=say("figure.axis.question", modulus=found.period),
        y=say("figure.axis.deviation"),
    )
    alt = say(
        "figure.tail.alt",
        largest=f"{found.tail.largest_pp:.1f}",
        upper=f"{found.tail.upper_pp:.1f}",
        margin=f"{margin:.1f}",
    )
    draw = partial(panels.deviation, rows=rows, margin=margin)
    table = points_table(words, found.tail.curve, modulus=found.period)
    return Figure("tail", titles, alt, table, draw)


__all__ = ["NAMES", "figures"]
