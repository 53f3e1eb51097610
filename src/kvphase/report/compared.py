"""A comparison of runs for the terminal and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from kvphase.decide.compare import ALPHA
from kvphase.report.ladder import rung_name
from kvphase.report.lines import clean, left, right, show
from kvphase.report.terminal import ENGLISH
from kvphase.report.words import shorten

if TYPE_CHECKING:
    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.decide.compare import Comparison, Pair, Standing, Table
    from kvphase.decide.pairs import Estimate
    from kvphase.runs.evidence import Evidence

SCHEMA = "kvphase/compare@1"
_NAME, _WORST, _MEAN, _GAP, _N, _CHANCE = 26, 9, 8, 8, 10, 14


def run_names(found: Comparison) -> list[str]:
    """What each run is called: its file's name without the ending."""
    return [clean(run.name.removesuffix(".kvphase").removesuffix(".json")) for run in found.runs]


def show_comparison(found: Comparison, out: Console, say: Catalogue = ENGLISH) -> None:
    """Every length: the ranking, then each pair."""
    names = run_names(found)
    show(out, say("decide.title", n=len(found.runs)), "bold")
    for name, run in zip(names, found.runs, strict=True):
        show(out, f"  {name}: {_about(run, say)}", "dim", hang="    ")
    for line in notes(found, say):
        show(out, line, "yellow")
    for table in found.tables:
        out.print()
        _show_table(table, names, out, say)
    out.print()
    if found.left_out:
        for why in found.left_out:
            show(out, clean(say.of(why)), "dim")
    level = say(
        "decide.explain.level",
        alpha=ALPHA,
        percent=100 * ALPHA,
        confidence=100 * (1 - ALPHA),
    )
    show(out, level, "dim")


def _about(run: Evidence, say: Catalogue) -> str:
    """Model, build and whatever else tells the runs apart."""
    labels = [f"{name}={value}" for name, value in run.labels.items()]
    parts = [run.title, run.quant, run.build, *labels, f"seed {run.seed}"]
    if run.suite is not None:
        parts.append(say("decide.suite.about", tasks=run.suite.tasks, flips=run.suite.flips))
    return clean(", ".join(part for part in parts if part))


def notes(found: Comparison, say: Catalogue = ENGLISH) -> list[str]:
    """What a reader must know of single runs: toys, unfinished, not to be trusted, counts."""
    lines = []
    for name, run in zip(run_names(found), found.runs, strict=True):
        if run.toy:
            lines.append(say("decide.note.demo", name=name))
        if run.partial:
            lines.append(say("decide.note.partial", name=name))
        if run.verdict == "unreliable":
            lines.append(say("decide.note.unreliable", name=name, why=clean(say.of(run.reason))))
        if run.counts:
            lines.append(say("decide.note.counts", name=name))
        if run.suite is not None and run.suite.ungraded:
            lines.append(say("decide.note.ungraded", name=name, n=run.suite.ungraded))
    return lines


def table_title(table: Table, say: Catalogue) -> str:
    """Length, modulus and what the worst phase is taken over."""
    key = "decide.length" if table.fold == table.modulus else "decide.length-fold"
    rung = length_name(table.rung, say)
    return say(key, rung=rung, modulus=table.modulus, fold=table.fold)


def length_name(rung: str, say: Catalogue) -> str:
    """``needle-2048`` as 2,048 tokens; anything else as in the list of rungs."""
    kind, _, tokens = rung.partition("-")
    if rung == "suite":
        return say("decide.rung.suite")
    if kind == "needle" and tokens.isdecimal():
        return say("page.rung.needle", tokens=f"{int(tokens):,}")
    return rung_name(rung, say)


def _show_table(table: Table, names: list[str], out: Console, say: Catalogue) -> None:
    show(out, table_title(table, say))
    heads = [say(f"decide.head.{head}") for head in ("worst", "mean", "gap", "n", "chance")]
    out.print(Text(_row(say("decide.head.run"), *heads), style="dim"), soft_wrap=True)
    for place, standing in enumerate(table.standings):
        chance = _chance(table, place)
        cells = (
            f"{100 * standing.worst:.1f}%",
            f"{100 * standing.mean:.1f}%",
            "-" if standing.gap_pp is None else f"{standing.gap_pp:.1f}",
            f"{standing.n:,}",
            "" if chance is None else percent_of(chance),
        )
        out.print(_row(f"{place + 1} {names[standing.run]}", *cells), soft_wrap=True)
        mark = standing_mark(standing, say)
        if mark:
            show(out, f"    {mark}", "yellow")
    fitted = all(standing.crossfitted for standing in table.standings)
    worst = "tasks" if table.kind == "suite" else "worst"
    show(out, say(f"decide.explain.{worst if fitted else 'raw'}"), "dim")
    for pair in table.pairs:
        out.print()
        for number, line in enumerate(pair_lines(pair, names, say)):
            show(out, line, "bold" if number == 0 else "", hang="  ")


def _row(name: str, worst: str, mean: str, gap: str, n: str, chance: str) -> str:
    line = f"  {left(shorten(name, _NAME), _NAME)}"
    for text, width in (
        (worst, _WORST),
        (mean, _MEAN),
        (gap, _GAP),
        (n, _N),
        (chance, _CHANCE),
    ):
        line += right(text, width)
    return line.rstrip()


def _chance(table: Table, place: int) -> float | None:
    """That this run and the next should change places; None for the last."""
    if place + 1 >= len(table.standings):
        return None
    one, other = table.standings[place], table.standings[place + 1]
    return table.pair(one.run, other.run).chance


def percent_of(chance: float) -> str:
    """A chance in percent; what no draw showed is below what draws can show."""
    return "<0.1%" if chance < 0.001 else f"{100 * chance:.1f}%"


def standing_mark(standing: Standing, say: Catalogue) -> str:
    """Whether this length of the run is unfinished or not to be trusted; else nothing."""
    marks = [say("decide.row.partial")] if standing.partial else []
    if standing.verdict == "unreliable":
        marks.append(say("decide.row.unreliable"))
    return ", ".join(marks)


def pair_lines(pair: Pair, names: list[str], say: Catalogue = ENGLISH) -> list[str]:
    """How the two were compared, what was found, and the figures."""
    one, two = names[pair.first], names[pair.second]
    lines = [
        say(
            "decide.finding.line",
            pair=f"{one} - {two}",
            finding=say(f"decide.finding.{pair.finding}", period=pair.pattern.period),
        )
    ]
    if pair.why is not None:
        lines.append(say("decide.pair.unpaired", one=one, two=two, why=clean(say.of(pair.why))))
    else:
        key = "decide.pair.left" if pair.left else "decide.pair.paired"
        lines.append(say(key, one=one, two=two, n=pair.n, left=pair.left))
    if pair.pattern.p_value is None:
        lines.append(say("decide.pair.pattern-none"))
    else:
        p, adjusted = pair.pattern.p_value, pair.pattern_holm
        lines.append(say("decide.pair.pattern", p=p, holm=adjusted))
    if pair.steady is not None:
        told = asdict(pair.steady)
        lines.append(say("decide.pair.steady", p=told["p_value"], holm=pair.steady_holm, **told))
    if pair.mean is not None:
        shown = _shown(pair.mean)
        lines.append(say("decide.pair.mean", p=pair.mean.p_value, holm=pair.mean_holm, **shown))
    if pair.gap is None:
        lines.append(say("decide.pair.gap-none"))
    else:
        lines.append(say("decide.pair.gap", **_shown(pair.gap)))
    if pair.apart:
        lines.append(say("decide.pair.apart"))
    return lines


def _shown(estimate: Estimate) -> dict[str, float]:
    """Centre and ends; adding zero keeps -0.0 out of the text."""
    return {name: round(getattr(estimate, name), 1) + 0.0 for name in ("pp", "low", "high")}


def comparison_json(found: Comparison) -> str:
    """``kvphase/compare@1``: everything shown, names as given, differences first minus second."""
    values = {
        "schema": SCHEMA,
        "alpha": ALPHA,
        "confidence": found.confidence,
        "runs": [_run_json(run) for run in found.runs],
        "lengths": [_table_json(table) for table in found.tables],
        "left_out": list(found.left_out),
        "notes": notes(found),
    }
    return json.dumps(values, indent=2)


def _run_json(run: Evidence) -> dict[str, Any]:
    return {
        "file": run.name,
        "model": run.title,
        "target": run.target,
        "build": run.build,
        "quant": run.quant,
        "labels": run.labels,
        "seed": run.seed,
        "frozen": run.frozen,
        "counts_only": run.counts,
        "partial": run.partial,
        "verdict": run.verdict,
        "demo": run.toy,
        "suite": None if run.suite is None else asdict(run.suite),
    }


def _table_json(table: Table) -> dict[str, Any]:
    ranking = []
    for place, standing in enumerate(table.standings):
        values = asdict(standing)
        values["lowest_residue"] = values.pop("lowest")
        ranking.append({"rank": place + 1, **values, "order_wrong": _chance(table, place)})
    return {
        "rung": table.rung,
        "context_tokens": table.tokens,
        "design": table.kind,
        "modulus": table.modulus,
        "phases": table.fold,
        "ranking": ranking,
        "pairs": [_pair_json(pair) for pair in table.pairs],
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "first": pair.first,
        "second": pair.second,
        "paired": pair.paired,
        "why_unpaired": pair.why,
        "n": pair.n,
        "left_out": pair.left,
        "finding": pair.finding,
        "pattern": {
            "p_value": pair.pattern.p_value,
            "p_adjusted": pair.pattern_holm,
            "period": pair.pattern.period if pair.finding in ("pattern", "both") else None,
        },
        "mean": _estimate_json(pair.mean, pair.mean_holm),
        "gap": _estimate_json(pair.gap, None),
        "right_everywhere": None
        if pair.steady is None
        else {**asdict(pair.steady), "p_adjusted": pair.steady_holm},
        "estimates_paired": pair.paired and not pair.apart,
        "order_wrong": pair.chance,
    }


def _estimate_json(estimate: Estimate | None, adjusted: float | None) -> dict[str, Any] | None:
    """A difference of means with its tests; of gaps without, which only have an interval."""
    if estimate is None:
        return None
    shown: dict[str, Any] = {"pp": estimate.pp, "ci": [estimate.low, estimate.high]}
    if adjusted is not None:
        shown |= {"p_value": estimate.p_value, "p_adjusted": adjusted}
    return shown


__all__ = [
    "comparison_json",
    "length_name",
    "notes",
    "pair_lines",
    "run_names",
    "show_comparison",
    "standing_mark",
    "table_title",
]
