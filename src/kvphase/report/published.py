"""The published models beside the reader's own."""

from __future__ import annotations

import json
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from kvphase.report.charts import Titles
from kvphase.report.panels import models as side_by_side
from kvphase.report.tables import Figure, Table, ends, kind_of
from kvphase.report.words import percent, shorten, span
from kvphase.stats.intervals import wilson

if TYPE_CHECKING:
    from kvphase.report.facts import PageFacts
    from kvphase.report.words import Words

Row = dict[str, Any]
Panel = tuple[tuple[str, ...], bool, list[Row]]


@cache
def needle_figures() -> dict[str, Any]:
    """The needle test's published counts, with their source."""
    text = (resources.files("kvphase.data") / "published.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)["niah"]
    return found


def published(words: Words, facts: PageFacts) -> Figure | None:
    """A panel a model: base, post-trained and versions apart, the reader's own first."""
    del facts
    document, say = words.document, words.say
    data = needle_figures()
    panels: list[Panel] = []
    table: list[tuple[str, ...]] = []
    own = [(p.residue, p.n, p.correct) for p in document.curve if p.n]
    if own:
        stage = say("terminal.demo") if document.demo else words.design(document.design)
        _add(words, panels, table, shorten(words.model, 40), stage, own, own=True)
    for model in data["models"]:
        stage = say(f"figure.stage.{model['stage']}", stride=model["stride"])
        counts = [(r, model["n"], correct) for r, correct in enumerate(model["correct"])]
        _add(words, panels, table, model["name"], stage, counts, own=False)
    titles = Titles(
        say("figure.published.heading"),
        (
            say("figure.published.reading"),
            say("figure.published.theirs", tokens=f"{data['prompt_tokens']:,}"),
            say("figure.published.yours", settings=words.settings()),
        ),
    )
    heads = ("model", "stage", "best", "worst", "gap", "n")
    columns = tuple(say(f"figure.column.{head}") for head in heads)
    return Figure(
        "published",
        titles,
        say("figure.published.alt", models=len(data["models"])),
        Table(say("figure.published.table"), columns, tuple(table)),
        partial(side_by_side, panels=panels),
    )


def _add(
    words: Words,
    panels: list[Panel],
    table: list[tuple[str, ...]],
    name: str,
    stage: str,
    counts: list[tuple[int, int, int]],
    *,
    own: bool,
) -> None:
    """One model's panel and its row of the table; ``counts`` are residue, n, correct."""
    rates = {residue: correct / n for residue, n, correct in counts}
    low, high = min(rates.values()), max(rates.values())
    worst, best = ends(rates if words.found or not own else {})
    gap = f"{100 * (high - low):.1f}"
    rows = []
    for residue, n, correct in counts:
        interval = wilson(correct, n)
        rows.append(
            {
                "residue": residue,
                "accuracy": 100 * rates[residue],
                "low": 100 * interval[0],
                "high": 100 * interval[1],
                "kind": kind_of(residue, worst, best),
            }
        )
    mine = "demo" if words.document.demo else "own"
    shown = words.say(f"figure.published.{mine}", model=name) if own else name
    gap_line = words.say("figure.published.gap", gap=gap)
    panels.append(((shown, stage, gap_line), own, rows))
    asked = span(n for _, n, _ in counts)
    table.append((shown, stage, percent(high), percent(low), gap, asked))
