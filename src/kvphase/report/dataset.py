"""Where a file's facts stand: the histogram of residues as text, and what a run would take."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from kvphase.report.lines import Glyphs, clean, left, right, show
from kvphase.report.progress import span
from kvphase.report.terminal import ENGLISH
from kvphase.report.unusable import by_reason, unusable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.report.unusable import Reason
    from kvphase.runs.dataset import Planned

_BAR = 40
_MOST_REASONS = 3
_LABEL, _COUNT = 16, 8


def show_residues(held: dict[str, Any], out: Console, say: Catalogue = ENGLISH) -> None:
    """The file, its entries that cannot be used, and its facts by residue.

    Args:
        held: The manifest's entry ``dataset``.
        out: Where to.
        say: The language.
    """
    kind = say(f"dataset.format.{held['format']}")
    values = {"file": clean(held["file"]), "format": kind}
    show(out, say("dataset.title", **values, n=held["entries"], facts=held["facts"]), "bold")
    if held["drawn"] < held["entries"] - len(held["unusable"]):
        show(out, say("dataset.drawn", n=held["drawn"]), "dim")
    show_reasons(unusable(held), out, say)
    for modulus, counts in held["residues"].items():
        show(out, say("dataset.histogram", modulus=modulus))
        for line in histogram(counts, Glyphs.of(out.encoding)):
            out.print(Text(line), soft_wrap=True)
    show(out, _spread(held, say), "bold yellow" if held["spread"] == "locked" else "")


def show_reasons(reasons: Sequence[Reason], out: Console, say: Catalogue = ENGLISH) -> None:
    """Entries that cannot be measured, by reason."""
    for one in reasons[:_MOST_REASONS]:
        values = {"count": one.count, "line": one.line, "why": clean(say.of(one.why))}
        show(out, say("dataset.left-out", **values), "yellow")
    rest = sum(one.count for one in reasons[_MOST_REASONS:])
    if rest:
        show(out, say("dataset.left-out-more", count=rest), "yellow")


def histogram(counts: Sequence[int], glyphs: Glyphs) -> list[str]:
    """One line a residue, its bar as long as its share of the fullest one."""
    most = max(*counts, 1)
    lines = []
    for residue, n in enumerate(counts):
        bar = glyphs.full * round(_BAR * n / most)
        lines.append(f"{right(str(residue), 12)}{right(f'{n:,}', _COUNT)}  {bar}".rstrip())
    return lines


def _spread(held: dict[str, Any], say: Catalogue) -> str:
    spread, n = held["spread"], held["facts"]
    if spread != "locked":
        return say(f"dataset.note-{spread}", n=n)
    modulus, residue, count = held["at"]
    return say("dataset.note-locked", modulus=modulus, residue=residue, count=count, n=n)


def show_as_is(held: dict[str, Any], out: Console, say: Catalogue = ENGLISH) -> None:
    """How many answers are right as the file stands, which is what other tools report."""
    asis, n = held.get("asis", (0, 0))
    if n:
        show(out, say("dataset.as-is", percent=100 * asis / n, n=n))


def show_plan(plan: Planned, held: dict[str, Any], out: Console, say: Catalogue = ENGLISH) -> None:
    """The histogram, and requests, tokens and time of each part."""
    about = plan.about
    demo = f"   {say('terminal.demo')}" if about.toy else ""
    show(out, clean(about.model or about.target) + demo, "bold")
    show_residues(held, out, say)
    out.print()
    heads = [say(f"dataset.plan.{name}") for name in ("prompts", "requests", "tokens", "time")]
    out.print(Text(_row("", heads), "dim"), soft_wrap=True)
    sizes = plan.sizes
    for name, n, cost in (
        ("asis", sizes.asis, sizes.cost_asis),
        ("shifted", sizes.shifted, sizes.cost_shifted),
    ):
        if cost is not None:
            cells = [f"{n:,}", f"{cost.prefills:,}", f"{cost.prefill_tokens:,}"]
            cells.append(say.of(span(cost.seconds)))
            out.print(Text(_row(say(f"dataset.plan.{name}"), cells)), soft_wrap=True)
    show(out, say("dataset.plan.control"), "dim")
    if sizes.why is not None:
        show(out, clean(say.of(sizes.why)), "yellow")


def _row(name: str, cells: Sequence[str]) -> str:
    return f"  {left(name, _LABEL)}{''.join(right(cell, 12) for cell in cells)}".rstrip()


def plan_json(plan: Planned, held: dict[str, Any]) -> str:
    """The same as JSON."""
    sizes = plan.sizes
    parts = [
        {"part": name, "prompts": n, **asdict(cost)}
        for name, n, cost in (
            ("asis", sizes.asis, sizes.cost_asis),
            ("shifted", sizes.shifted, sizes.cost_shifted),
        )
        if cost is not None
    ]
    reasons = [
        {"why": str(one.why), "count": one.count, "line": one.line} for one in unusable(held)
    ]
    return json.dumps(
        {
            "schema": "kvphase/dataset-plan@1",
            "target": plan.about.target,
            "dataset": {**held, "unusable": reasons},
            "parts": parts,
            "skipped": None if sizes.why is None else str(sizes.why),
        },
        indent=2,
    )


__all__ = ["by_reason", "plan_json", "show_as_is", "show_plan", "show_reasons", "show_residues"]
