"""The rungs of a run, and the confirmation of a finding, as text for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from kvphase.catalogue import Message
from kvphase.report.lines import clean, left, right, show
from kvphase.report.terminal import ENGLISH, STYLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.runs.check import Run
    from kvphase.schema import ConfirmJson, FactorJson, LengthJson, TailJson, VerdictFile
    from kvphase.stats.confirmed import Confirmation, Factor, Tail

_RUNG, _VERDICT, _MEAN, _WORST, _GAP, _N = 11, 16, 6, 14, 15, 8
_FACTOR, _P, _FACTOR_GAP, _MDE = 27, 9, 16, 18


def show_rungs(
    document: VerdictFile,
    out: Console,
    say: Catalogue = ENGLISH,
    messages: Mapping[str, Message] | None = None,
) -> None:
    """One line a rung, then the rungs that were skipped and why.

    Args:
        document: Of a run.
        out: Where to.
        say: The language.
        messages: English texts of the run that can be said in another language, by their text.
    """
    rungs = document.per_length
    show(out, say("terminal.rungs.title"))
    if any(rung.rung == "flip" for rung in rungs):
        show(out, say("terminal.explain.flip"), "dim")
    out.print(Text(_row(*_heads(say)), style="dim"), soft_wrap=True)
    for rung in rungs:
        out.print(_rung_line(rung, say), soft_wrap=True)
    for skipped in document.skipped:
        why = say.of((messages or {}).get(skipped.why, skipped.why))
        line = f"  {left(rung_name(skipped.rung, say), _RUNG - 1)} "
        line += say("terminal.rungs.skipped", why=clean(why))
        show(out, line, "dim", hang=" " * (2 + _RUNG))
    if len(rungs) > 1:
        show(out, say("terminal.rungs.rests", rung=rung_name(document.rung, say)))


def rung_name(rung: str, say: Catalogue = ENGLISH) -> str:
    """``needle-2048`` as ``2k``, ``flip`` in words; anything else as it is."""
    kind, _, tokens = rung.partition("-")
    if kind in ("needle", "pilot", "confirm") and tokens.isdecimal():
        n = int(tokens)
        length = f"{n // 1024}k" if n % 1024 == 0 else f"{n:,}"
        return length if kind == "needle" else say(f"terminal.rung.{kind}", length=length)
    if kind in ("asis", "shifted"):
        return say(f"terminal.rung.{kind}")
    if rung in ("flip", "imported"):
        return say(f"terminal.rung.{rung}")
    return clean(rung)


def messages_of(run: Run) -> dict[str, Message]:
    """Texts of a run that its document holds in English only, by their English text."""
    texts = [skipped.why for skipped in run.skipped]
    texts += [r.confirmation.reason for r in run.results if r.confirmation is not None]
    return {str(text): text for text in texts if isinstance(text, Message)}


def _heads(say: Catalogue) -> tuple[str, ...]:
    names = ("rung", "verdict", "mean", "worst", "gap", "answers")
    return tuple(say(f"terminal.rungs.{name}") for name in names)


def _row(rung: str, verdict: str, mean: str, worst: str, gap: str, n: str) -> str:
    return (
        f"  {left(rung, _RUNG)}{left(verdict, _VERDICT)}{right(mean, _MEAN)}"
        f"{right(worst, _WORST)}{right(gap, _GAP)}{right(n, _N)}"
    )


def _rung_line(rung: LengthJson, say: Catalogue) -> Text:
    name, verdict = rung_name(rung.rung, say), say(f"verdict.name.{rung.verdict}")
    worst, pp = "-", rung.gap.crossfit_pp
    if rung.worst is not None:
        percent = 100 * rung.worst.accuracy
        worst = say("terminal.rungs.at", residue=rung.worst.residue, percent=percent)
    gap = say("terminal.rungs.raw", pp=rung.gap.raw_pp) if pp is None else f"{pp:.1f}"
    mean = f"{100 * rung.mean:.1f}%"
    line = _row(name, verdict, mean, worst, gap, f"{rung.n:,}")
    if rung.partial:
        line += f" {say('terminal.rungs.partial')}"
    text = Text(line)
    start = len(f"  {left(name, _RUNG)}")
    text.stylize(STYLES[rung.verdict], start, start + len(verdict))
    return text


def show_confirmation(
    confirm: Confirmation | ConfirmJson,
    out: Console,
    say: Catalogue = ENGLISH,
    messages: Mapping[str, Message] | None = None,
) -> None:
    """Which position the effect follows, the three factors, and the tail control."""
    good = confirm.status == "follows-target"
    show(out, say(f"terminal.confirm.{confirm.status}"), "bold" if good else "bold yellow")
    show(out, clean(say.of((messages or {}).get(confirm.reason, confirm.reason))))
    heads = (say(f"terminal.confirm.{name}") for name in ("p", "gap", "mde"))
    head = _factor_row(say("terminal.confirm.head", period=confirm.period), *heads)
    out.print(Text(head, style="dim"), soft_wrap=True)
    for factor in confirm.factors:
        out.print(Text(_factor_line(factor, say)), soft_wrap=True)
    if confirm.tail is not None:
        show(out, _tail_line(confirm.tail, say))
    how = "partial" if getattr(confirm, "partial", False) else "answers"
    show(out, say(f"terminal.confirm.{how}", n=confirm.n, contexts=confirm.contexts), "dim")


def _factor_row(name: str, p: str, gap: str, mde: str) -> str:
    return f"  {left(name, _FACTOR)}{right(p, _P)}{right(gap, _FACTOR_GAP)}{right(mde, _MDE)}"


def _factor_line(factor: Factor | FactorJson, say: Catalogue) -> str:
    name = say(f"terminal.factor.{factor.name}")
    if factor.p_value is None:
        untold = say("terminal.confirm.untold")
        return f"  {left(name, _FACTOR)}{right(untold, max(_P + _FACTOR_GAP, cell_len(untold)))}"
    gap = "-" if factor.gap_pp is None else f"{factor.gap_pp:.1f}"
    mde = "-" if factor.mde_pp is None else say("terminal.confirm.from", pp=factor.mde_pp)
    return _factor_row(name, f"{factor.p_value:.2g}", gap, mde)


def _tail_line(tail: Tail | TailJson, say: Catalogue) -> str:
    return say(
        f"terminal.tail.{tail.status}",
        largest=tail.largest_pp,
        upper=tail.upper_pp,
        margin=tail.margin_pp,
    )


__all__ = ["messages_of", "rung_name", "show_confirmation", "show_rungs"]
