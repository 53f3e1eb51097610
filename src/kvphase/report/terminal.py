"""The curve and the verdict as text: 80 columns, with or without colour and Unicode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from kvphase.runs.check import Run
    from kvphase.types import CurvePoint, Verdict

WIDTH = 80
_BAR = 44
_STYLES = {
    "phase-sensitive": "bold red",
    "aperiodic": "bold yellow",
    "unreliable": "bold yellow",
    "saturated": "bold yellow",
    "not-detected": "bold green",
    "inconclusive": "bold cyan",
}
_MEANING = {
    "phase-sensitive": "answers depend on where the fact stands modulo {period}",
    "aperiodic": "answers depend on the position, but the pattern does not repeat over cycles",
    "unreliable": "answers change for reasons other than position; phase cannot be judged",
    "saturated": "too easy or too hard for phase to show",
    "not-detected": "no dependence on phase; one of {mde:.1f} points or more would have shown",
    "inconclusive": "no dependence on phase seen, but too little was asked to rule it out",
}
DEMO = "DEMO: toy model, not yours"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters that the output's encoding can carry."""

    full: str
    part: str
    low: str
    high: str
    dot: str

    @classmethod
    def of(cls, encoding: str | None) -> Glyphs:
        """Block characters where ``encoding`` has them, ASCII elsewhere."""
        fancy = cls("█", "─", "├", "┤", "·")
        try:
            "".join((fancy.full, fancy.part, fancy.low, fancy.high, fancy.dot)).encode(
                encoding or "ascii"
            )
        except (UnicodeEncodeError, LookupError):
            return cls("#", "-", "|", "|", "-")
        return fancy


def console(stream: TextIO) -> Console:
    """A console on ``stream``, 80 columns where it is no terminal; markup is never interpreted."""
    plain = Console(file=stream, markup=False, highlight=False, emoji=False)
    return (
        plain
        if plain.is_terminal
        else Console(file=stream, markup=False, highlight=False, emoji=False, width=WIDTH)
    )


def show_run(run: Run, out: Console) -> None:
    """The curve, the verdict, what it rests on, and where the files are."""
    glyphs = Glyphs.of(out.encoding)
    manifest, design = run.manifest, run.manifest["design"]
    title = clean(manifest["model"] or manifest["target"])
    if manifest["toy"]:
        title = f"{title}   {DEMO}"
    out.print(Text(title, style="bold"))
    kind = {"insequence": "in-sequence", "prefix": "prefix padding"}[design["kind"]]
    if manifest["template"] != "none":
        kind += f", chat template, thinking {manifest['thinking']}"
    out.print(
        f"{kind} {glyphs.dot} {design['context_tokens']} tokens {glyphs.dot} "
        f"{design['records']} records {glyphs.dot} seed {manifest['seed']}"
    )
    out.print()
    show_verdict(run.verdict, out, partial=run.partial, of="the token position of the fact")
    out.print(Text(_cost(run), style="dim"))


def show_verdict(
    verdict: Verdict, out: Console, *, partial: bool = False, of: str = "the position"
) -> None:
    """The curve by residue and the verdict in words; ``of`` says what stands at the position."""
    glyphs = Glyphs.of(out.encoding)
    interval = f"{glyphs.low}{glyphs.part}{glyphs.high}"
    out.print(f"Right answers by {of}, modulo {verdict.modulus} ({interval} 95% interval):")
    for line in curve_lines(verdict.curve, verdict.modulus, glyphs):
        out.print(line)
    out.print()
    name = verdict.verdict + (" (partial run)" if partial else "")
    meaning = _MEANING[verdict.verdict].format(period=verdict.period, mde=verdict.mde_pp or 0.0)
    out.print(Text.assemble((name, _STYLES[verdict.verdict]), f": {meaning}"))
    out.print(verdict.reason)
    if verdict.would_settle:
        out.print(f"What would settle it: {verdict.would_settle}")
    for figure in _figures(verdict):
        out.print(Text(figure))
    for note in verdict.notes:
        out.print(Text(f"Note: {note}", style="dim"))


def curve_lines(points: Iterable[CurvePoint], modulus: int, glyphs: Glyphs) -> list[Text]:
    """One line a residue: accuracy as a bar, its 95% interval drawn over it."""
    points = tuple(points)
    scale = f"0%{'50%':>{_BAR // 2}}{'100%':>{_BAR // 2}}"
    lines = [Text(f"  target mod {modulus:<3} accuracy   {scale}")]
    if not points:
        return lines
    rates = [p.accuracy for p in points if p.n]
    worst, best = min(rates, default=0.0), max(rates, default=0.0)
    for point in points:
        style = ""
        if best > worst and point.n:
            style = {worst: "red", best: "green"}.get(point.accuracy, "")
        if not point.n:
            lines.append(Text(f"{point.residue:>12}        -    none asked"))
            continue
        label = f"{point.residue:>12}   {100 * point.accuracy:6.1f}%     "
        lines.append(Text.assemble(label, (_bar(point, glyphs), style), f" n={point.n}"))
    return lines


def _bar(point: CurvePoint, glyphs: Glyphs) -> str:
    """A bar of ``_BAR`` cells with the interval as whiskers."""
    filled = round(point.accuracy * _BAR)
    cells = [glyphs.full if i < filled else " " for i in range(_BAR)]
    low, high = (min(_BAR - 1, int(x * _BAR)) for x in point.ci95)
    for i in range(max(filled, low), high + 1):
        cells[i] = glyphs.part
    if low < filled:
        cells[low] = glyphs.low
    cells[high] = glyphs.high
    return "".join(cells)


def _figures(verdict: Verdict) -> list[str]:
    gap, audit = verdict.gap, verdict.audit
    lines = [
        f"Gap (best minus worst phase): {gap.raw_pp:.1f} percentage points raw; "
        f"chance alone gives {gap.null_pp:.1f}."
    ]
    if gap.crossfit_pp is not None and gap.ci95 is not None:
        low, high = gap.ci95
        lines.append(
            f"Cross-fitted gap: {gap.crossfit_pp:.1f} points, 95% interval "
            f"{low:.1f} to {high:.1f} (over {gap.over})."
        )
    lines.append(_level(verdict))
    if audit.repeated or audit.cold:
        lines.append(
            f"Audit: {audit.repeat_flips} of {audit.repeated} repeats and {audit.cold_flips} of "
            f"{audit.cold} cold asks answered otherwise ({audit.near_ties} at near ties)."
        )
    return lines


def _level(verdict: Verdict) -> str:
    line = f"Mean {100 * verdict.mean:.1f}%"
    if verdict.worst is not None and verdict.best is not None:
        line += (
            f", worst residue {verdict.worst.residue} at {100 * verdict.worst.accuracy:.1f}%"
            f", best residue {verdict.best.residue} at {100 * verdict.best.accuracy:.1f}%"
        )
    if verdict.p_value is not None:
        line += f"; p = {verdict.p_value:.2g}"
    return line + f"; {verdict.n:,} answers."


def _cost(run: Run) -> str:
    totals = run.totals
    line = f"{totals['asked']:,} asks in {float(totals['seconds'] or 0):.1f} s"
    if totals["prefilled"] is not None:
        line += f"; tokens: {totals['prefilled']:,} prefilled"
    if totals["cached"] is not None:
        line += f", {totals['cached']:,} from the cache"
    return line + "."


def clean(text: str) -> str:
    """``text`` without control characters: a model's words must not drive the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
