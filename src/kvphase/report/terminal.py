"""The curve and the verdict as text: 80 columns, with or without colour, Unicode and Chinese."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.text import Text

from kvphase.catalogue import Catalogue, message
from kvphase.report.lines import WIDTH, Glyphs, clean, console, left, right, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from kvphase.runs.check import Run
    from kvphase.schema import AuditJson, LookJson
    from kvphase.types import Audit, CurvePoint, Look, Verdict

_BAR = 44
_BEFORE_BAR = 27
STYLES = {
    "phase-sensitive": "bold red",
    "aperiodic": "bold yellow",
    "unreliable": "bold yellow",
    "saturated": "bold yellow",
    "not-detected": "bold green",
    "inconclusive": "bold cyan",
}
ENGLISH = Catalogue("en")
POSITION = message("terminal.of.position")
FACT = message("terminal.of.fact")


def show_run(run: Run, out: Console, say: Catalogue = ENGLISH) -> None:
    """The curve, the verdict and what it rests on."""
    manifest = run.manifest
    name = clean(manifest["model"] or manifest["target"])
    demo = say("terminal.demo")
    show(out, f"{name}   {demo}" if manifest["toy"] else name, "bold")
    show(out, f" {Glyphs.of(out.encoding).dot} ".join(_settings(run, say)))
    if manifest["toy"]:
        show_compression(name, out, say)
    out.print()
    show_verdict(run.verdict, out, say, partial=run.partial, of=FACT, planned=_planned(run))
    show(out, _cost(run, say), "dim")
    show(out, say("terminal.explain.prefill"), "dim")


def _settings(run: Run, say: Catalogue) -> list[str]:
    """Design, length, records and seed of the rung that the verdict rests on."""
    manifest, stage = run.manifest, run.rung.stage
    kind = say(f"terminal.design.{stage.design['kind'] if stage.kind == 'needle' else stage.kind}")
    if manifest["template"] != "none":
        kind = say("terminal.design.chat", design=kind, thinking=clean(str(manifest["thinking"])))
    parts = [kind]
    if stage.tokens is not None:
        parts.append(say("terminal.design.tokens", n=stage.tokens))
    if "records" in stage.design:
        parts.append(say("terminal.design.records", n=stage.design["records"]))
    return [*parts, say("terminal.design.seed", seed=manifest["seed"])]


def show_compression(name: str, out: Console, say: Catalogue = ENGLISH) -> None:
    """What a toy's name means."""
    sizes = re.search(r"w(\d+)s(\d+)", name)
    if sizes:
        window, stride = sizes.groups()
        show(
            out,
            say("terminal.explain.compressed", name=sizes[0], window=window, stride=stride),
            "dim",
        )
    elif name.endswith("full"):
        show(out, say("terminal.explain.full", name="full"), "dim")


def show_verdict(
    verdict: Verdict,
    out: Console,
    say: Catalogue = ENGLISH,
    *,
    partial: bool = False,
    of: str = POSITION,
    planned: int | None = None,
) -> None:
    """The curve by residue and the verdict in words.

    Args:
        verdict: What was found.
        out: Where to.
        say: The language.
        partial: The run was not finished.
        of: What stands at the position.
        planned: Questions the run would have asked had it not found something early.
    """
    glyphs = Glyphs.of(out.encoding)
    interval = f"{glyphs.low}{glyphs.part}{glyphs.high}"
    title = say("terminal.curve.title", of=of, modulus=verdict.modulus, interval=interval)
    show(out, title)
    show(out, say("terminal.explain.residue", modulus=verdict.modulus), "dim")
    for line in curve_lines(verdict.curve, verdict.modulus, glyphs, say):
        out.print(line, soft_wrap=True)
    out.print()
    _show_name(verdict, out, say, partial=partial)
    show(out, say.of(verdict.reason))
    if verdict.would_settle:
        show(out, say("terminal.settle", what=verdict.would_settle))
    for figure in _figures(verdict, planned, say):
        show(out, figure)
    for note in verdict.notes:
        show(out, say("terminal.note", note=note), "dim")


def _show_name(verdict: Verdict, out: Console, say: Catalogue, *, partial: bool) -> None:
    """The verdict's name and its meaning, in one sentence."""
    name = verdict_name(verdict.verdict, say)
    if partial:
        name = say("terminal.partial", name=name)
    meaning = say(
        f"verdict.meaning.{verdict.verdict}", period=verdict.period, mde=verdict.mde_pp or 0.0
    )
    line = say("terminal.verdict", name=name, meaning=meaning)
    show(out, line, STYLES[verdict.verdict], lead=len(name))


def verdict_name(verdict: str, say: Catalogue = ENGLISH) -> str:
    """A verdict's name; in Chinese with the one that files and other people use."""
    return say("terminal.named", name=say(f"verdict.name.{verdict}"), id=verdict)


def curve_lines(
    points: Iterable[CurvePoint], modulus: int, glyphs: Glyphs, say: Catalogue = ENGLISH
) -> list[Text]:
    """One line a residue: accuracy as a bar, its 95% interval drawn over it."""
    points = tuple(points)
    digits = len(str(max((point.n for point in points), default=0)))
    bar = min(_BAR, WIDTH - _BEFORE_BAR - len(" n=") - digits)
    scale = f"0%{right('50%', bar // 2)}{right('100%', bar - bar // 2)}"
    residue = left(say("terminal.curve.residue", modulus=modulus), 14)
    lines = [Text(f"  {residue} {left(say('terminal.curve.accuracy'), 8)}   {scale}")]
    rates = [point.accuracy for point in points if point.n]
    worst, best = min(rates, default=0.0), max(rates, default=0.0)
    for point in points:
        if not point.n:
            lines.append(Text(f"{point.residue:>12}        -    {say('terminal.curve.none')}"))
            continue
        style = {worst: "red", best: "green"}.get(point.accuracy, "") if best > worst else ""
        label = f"{point.residue:>12}   {100 * point.accuracy:6.1f}%     "
        lines.append(Text.assemble(label, (_bar(point, glyphs, bar), style), f" n={point.n}"))
    return lines


def _bar(point: CurvePoint, glyphs: Glyphs, width: int) -> str:
    """A bar of ``width`` cells with the interval as whiskers."""
    filled = round(point.accuracy * width)
    cells = [glyphs.full if i < filled else " " for i in range(width)]
    low, high = (min(width - 1, int(x * width)) for x in point.ci95)
    for i in range(max(filled, low), high + 1):
        cells[i] = glyphs.part
    if low < filled:
        cells[low] = glyphs.low
    cells[high] = glyphs.high
    return "".join(cells)


def _figures(verdict: Verdict, planned: int | None, say: Catalogue) -> list[str]:
    gap = verdict.gap
    lines = [say("terminal.gap.raw", pp=gap.raw_pp, chance=gap.null_pp)]
    if gap.crossfit_pp is not None and gap.ci95 is not None:
        low, high = gap.ci95
        lines.append(
            say("terminal.gap.crossfit", pp=gap.crossfit_pp, low=low, high=high, over=gap.over)
        )
    found = (_looks(verdict, planned, say), audit_line(verdict.audit, say))
    return [*lines, _level(verdict, say), *(line for line in found if line)]


def _level(verdict: Verdict, say: Catalogue) -> str:
    line = say("terminal.level.mean", mean=100 * verdict.mean)
    worst, best = verdict.worst, verdict.best
    if worst is not None and best is not None:
        line += say(
            "terminal.level.extremes",
            worst=worst.residue,
            low=100 * worst.accuracy,
            best=best.residue,
            high=100 * best.accuracy,
        )
    if verdict.p_value is not None:
        line += say("terminal.level.p", p=verdict.p_value)
    return line + say("terminal.level.n", n=verdict.n)


def audit_line(audit: Audit | AuditJson, say: Catalogue = ENGLISH) -> str | None:
    """How many answers changed when asked again in each way; None if none were asked again."""
    asked = {
        "repeat": (audit.repeated, audit.repeat_flips),
        "cold": (audit.cold, audit.cold_flips),
        "alone": (audit.alone, audit.alone_flips),
    }
    parts = [
        say(f"terminal.audit.{way}", n=n, flips=flips, near=audit.near_ties)
        for way, (n, flips) in asked.items()
        if n
    ]
    if not parts:
        return None
    return say("terminal.audit", parts=say("terminal.comma").join(parts))


def _looks(verdict: Verdict, planned: int | None, say: Catalogue) -> str | None:
    return looks_line(verdict.looks, verdict.n, say, planned, fresh=verdict.fresh)


def looks_line(
    looks: Sequence[Look | LookJson],
    n: int,
    say: Catalogue = ENGLISH,
    planned: int | None = None,
    *,
    fresh: bool = True,
) -> str | None:
    """How often the answers were looked at, and what was found when; None for a single test.

    Args:
        looks: In order; their weights add up to less than 1 where the last one found something.
        n: Answers that level and gap come from.
        say: The language.
        planned: Questions the run would have asked had it found nothing.
        fresh: Those answers were all asked after the look that found something.
    """
    if not looks:
        return None
    k, seen = len(looks), looks[-1].n
    if sum(look.weight for look in looks) > 1 - 1e-6:
        return say("terminal.looks.all", k=k)
    if not fresh:
        return say("terminal.looks.same", k=k, seen=seen)
    how = "early" if planned is None else "early-of"
    return say(f"terminal.looks.{how}", k=k, seen=seen, n=n, planned=planned)


def show_traffic(traffic: bool | None, out: Console, say: Catalogue = ENGLISH) -> None:
    """A line where somebody else used the server during the run."""
    if traffic:
        show(out, say("terminal.traffic"), "yellow")


def _planned(run: Run) -> int | None:
    """Screen questions of the verdict's rung, had it found nothing on the way."""
    looks, contexts = run.verdict.looks, run.rung.stage.looks
    if not looks or len(looks) > len(contexts):
        return None
    return looks[-1].n * contexts[-1] // contexts[len(looks) - 1]


def _cost(run: Run, say: Catalogue) -> str:
    totals = run.totals
    line = say("terminal.cost.asks", asked=totals["asked"], seconds=float(totals["seconds"] or 0))
    if totals["prefilled"] is not None:
        line += say("terminal.cost.prefilled", n=totals["prefilled"])
    if totals["cached"] is not None:
        line += say("terminal.cost.cached", n=totals["cached"])
    return line + say("terminal.cost.end")


__all__ = [
    "ENGLISH",
    "FACT",
    "STYLES",
    "Glyphs",
    "audit_line",
    "clean",
    "console",
    "curve_lines",
    "looks_line",
    "show_compression",
    "show_run",
    "show_traffic",
    "show_verdict",
    "verdict_name",
]
