"""A layout for the terminal and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvphase.placement.grid import NEEDLE
from kvphase.report.lines import clean, left, right, show
from kvphase.report.terminal import ENGLISH
from kvphase.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.placement.found import Layout, Option, Placed, Wanted
    from kvphase.placement.session import Session
    from kvphase.placement.verify import Verified

SCHEMA = "kvphase/layout@1"
_TEXT = 30
_MOST_SHOWN = 3
"""Prompts of a suite that are shown one by one."""
_FEW = 20
"""Tasks below which a difference says little."""


def show_layout(session: Session, out: Console, say: Catalogue = ENGLISH) -> None:
    """Where the spans stand, what could be done, what was done, and what came of it."""
    _show_known(session, out, say)
    layouts = session.layouts
    if len(layouts) <= _MOST_SHOWN:
        for layout in layouts:
            _show_prompt(session, layout, out, say)
    else:
        _show_suite(session, out, say)
    if session.wanted.basis == "profile" and session.verified is None:
        show(out, say("layout.claim-rule"), "dim")
    if session.verified is not None:
        _show_verified(session.verified, out, say)


def _show_known(session: Session, out: Console, say: Catalogue) -> None:
    """The grid, the profile, and what they allow to be said: before anything else."""
    wanted, about = session.wanted, session.about
    if about.toy:
        name = clean(about.model or about.target)
        show(out, f"{name}   {say('terminal.demo')}", "bold")
    grid, profile = wanted.grid, wanted.profile
    if grid is not None:
        key = "layout.grid-assumed" if wanted.assumed else "layout.grid"
        show(out, say(key, stride=grid.stride, window=grid.window))
    elif wanted.basis == "unknown":
        show(out, say("layout.no-grid"))
    if profile is not None:
        levels = say("shift.comma").join(
            say("layout.level", residue=p.residue, accuracy=100 * p.accuracy) for p in profile.curve
        )
        key = "layout.profile" if levels else "layout.profile-short"
        show(
            out,
            say(
                key,
                name=clean(profile.name),
                model=clean(profile.model),
                mean=100 * profile.mean,
                period=profile.period,
                levels=levels,
            ),
        )
        if profile.foreign:
            show(out, say("layout.foreign", reason=say.of(profile.reason)), "bold yellow")
        if profile.demo:
            show(out, say("layout.demo"), "dim")
    _show_basis(wanted, out, say)


def _show_basis(wanted: Wanted, out: Console, say: Catalogue) -> None:
    """Beforehand: whether anything is to be gained."""
    if wanted.basis == "profile":
        return
    reason = verdict = ""
    if wanted.profile is not None:
        reason = clean(say.of(wanted.profile.reason))
        verdict = wanted.profile.verdict or ""
    line = say(f"layout.basis-{wanted.basis}", reason=reason, verdict=verdict)
    show(out, line, "bold")


def _show_prompt(session: Session, layout: Layout, out: Console, say: Catalogue) -> None:
    out.print()
    target = clean(session.about.model or session.about.target)
    head = say("layout.head", name=clean(layout.name), total=layout.total, target=target)
    show(out, head, "bold")
    if not layout.marked:
        show(out, say("layout.unmarked"), "dim")
    heads = [say(f"layout.column-{name}") for name in ("span", "tokens", "phase", "depth")]
    line = f"  {left(heads[0], _TEXT)}{right(heads[1], 16)}{right(heads[2], 7)}"
    line += f"{right(heads[3], 8)}  {say('layout.column-window')}"
    show(out, line.rstrip(), "dim")
    for span in layout.spans:
        _show_span(layout, span, out, say)
    out.print()
    _show_change(layout, out, say)
    for note in layout.notes:
        show(out, say("terminal.note", note=note), "dim")


def _name(span: Placed, say: Catalogue) -> str:
    text = clean(" ".join(span.text.split()))
    if span.kind != "marked":
        text = f"{say(f'layout.kind-{span.kind}')}: {text}"
    # Chinese characters take two cells: half as many of them fit.
    room = _TEXT - 2 if text.isascii() else _TEXT // 2
    return text if len(text) <= room else text[: room - 1] + "…"


def _phase(layout: Layout, position: int) -> str:
    return "-" if layout.grid is None else str(layout.grid.phase(position))


def _show_span(layout: Layout, span: Placed, out: Console, say: Catalogue) -> None:
    at = span.before
    line = f"  {left(_name(span, say), _TEXT)}{right(f'{at.start}-{at.end - 1}', 16)}"
    line += f"{right(_phase(layout, at.start), 7)}{right(f'{100 * at.depth:.1f}%', 8)}  "
    if span.straddles is not None:
        line += say("layout.cut" if span.straddles else "layout.whole")
    show(out, line.rstrip())
    if span.near:
        show(out, f"    {say('layout.near')}", "dim", hang="    ")
    if layout.basis == "profile" and not at.needle:
        show(out, f"    {say('layout.long', most=NEEDLE)}", "dim", hang="    ")
    if span.claim is not None:
        low, high = span.claim.ci95
        values = {"accuracy": 100 * span.claim.accuracy, "low": 100 * low, "high": 100 * high}
        show(out, f"    {say('layout.claim', **values)}", hang="    ")
    for option in span.options:
        mark = f"  ({say('layout.cheapest')})" if option.way == span.cheapest else ""
        show(out, f"    {_option(layout, option, say)}{mark}", "dim", hang="      ")
    if span.claim is not None and span.cheapest is None and span.options:
        show(out, f"    {say('layout.already')}", "dim")


def _option(layout: Layout, option: Option, say: Catalogue) -> str:
    if not option.possible:
        return say("layout.option-none", way=option.way)
    comma = say("shift.comma")
    phases = comma.join(_phase(layout, start) for start in option.starts)
    text = say(f"layout.option-{option.way}", tokens=option.tokens, phases=phases)
    if option.expected is None:
        return text
    values = {"accuracy": 100 * option.expected}
    if option.least is not None:
        return text + comma + say("layout.expected-least", least=100 * option.least, **values)
    return text + comma + say("layout.expected", **values)


def _show_change(layout: Layout, out: Console, say: Catalogue) -> None:
    if not layout.differs:
        show(out, say("layout.change-none"))
        return
    added = layout.total_after - layout.total
    show(out, say(f"layout.change-{layout.way}", tokens=added), "bold")
    for put in layout.puts:
        text = put.text if len(put.text) <= 60 else put.text[:59] + "…"
        line = say("layout.change-put", size=put.size, at=put.at, text=text)
        show(out, f"  {line}", hang="    ")
    for span in layout.spans:
        if span.after is None:
            continue
        line = say(
            "layout.span-after",
            name=_name(span, say),
            before=span.before.start,
            after=span.after.start,
            old=_phase(layout, span.before.start),
            new=_phase(layout, span.after.start),
        )
        comma = say("shift.comma")
        if span.copy is not None:
            phase = _phase(layout, span.copy)
            line += comma + say("layout.span-copy", copy=span.copy, phase=phase)
        elif span.claim is not None and span.claim_after is not None:
            old, new = 100 * span.claim.accuracy, 100 * span.claim_after.accuracy
            line += comma + say("layout.span-claim", old=old, new=new)
        show(out, f"  {line}", hang="    ")


def _show_suite(session: Session, out: Console, say: Catalogue) -> None:
    layouts = session.layouts
    spans = [span for layout in layouts for span in layout.spans]
    values = {
        "tasks": len(layouts),
        "changed": sum(layout.differs for layout in layouts),
        "tokens": sum(layout.total_after - layout.total for layout in layouts),
        "spans": len(spans),
    }
    show(out, say("layout.suite", **values))
    pairs = [
        (span.claim.accuracy, span.claim_after.accuracy)
        for span in spans
        if span.claim is not None and span.claim_after is not None and span.copy is None
    ]
    if pairs:
        old, new = (100 * sum(side) / len(pairs) for side in zip(*pairs, strict=True))
        show(out, say("layout.suite-claims", old=old, new=new))
    for note in dict.fromkeys(note for layout in layouts for note in layout.notes):
        show(out, say("terminal.note", note=note), "dim")


def _show_verified(found: Verified, out: Console, say: Catalogue) -> None:
    out.print()
    before, after = found.before, found.after
    values = {
        "before": 100 * before.accuracy,
        "b0": 100 * before.ci95[0],
        "b1": 100 * before.ci95[1],
        "after": 100 * after.accuracy,
        "a0": 100 * after.ci95[0],
        "a1": 100 * after.ci95[1],
    }
    show(out, say("layout.verified", n=before.n, **values), "bold")
    low, high = found.ci95_pp
    line = say(
        "layout.verified-difference",
        pp=found.difference_pp,
        low=low,
        high=high,
        gained=found.gained,
        lost=found.lost,
        p=found.p_value,
    )
    show(out, line)
    if found.score is not None:
        show(out, say("layout.verified-score", score=found.score))
    if found.unfinished:
        show(out, say("layout.verified-cut", n=found.unfinished))
    if before.n < _FEW:
        show(out, say("layout.verified-few"), "dim")


def layout_json(session: Session) -> str:
    """``kvphase/layout@1``: accuracies are fractions, differences percentage points."""
    wanted, about, profile = session.wanted, session.about, session.wanted.profile
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "kvphase": __version__,
        "target": about.target,
        "runtime": about.runtime,
        "model": about.model,
        "demo": about.toy,
        "basis": wanted.basis,
        "stride": None if wanted.grid is None else wanted.grid.stride,
        "window": None if wanted.grid is None else wanted.grid.window,
        "window_assumed": wanted.assumed,
        "profile": None
        if profile is None
        else {
            "name": profile.name,
            "model": profile.model,
            "published": profile.foreign,
            "demo": profile.demo,
            "verdict": profile.verdict,
            "reason": profile.reason,
            "period": profile.period,
            "mean": profile.mean,
            "curve": [asdict(point) for point in profile.curve],
        },
        "change": wanted.way,
        "prompts": [_prompt_json(layout) for layout in session.layouts],
        "verified": None if session.verified is None else _verified_json(session.verified),
        "partial": session.spent is not None,
    }
    return json.dumps(values, indent=2)


def _prompt_json(layout: Layout) -> dict[str, Any]:
    return {
        "name": layout.name,
        "tokens": layout.total,
        "tokens_after": layout.total_after,
        "changed": layout.differs,
        "marked": layout.marked,
        "pads": [{"at": put.at, "tokens": put.size, "text": put.text} for put in layout.puts],
        "spans": [_span_json(layout, span) for span in layout.spans],
        "notes": list(layout.notes),
    }


def _span_json(layout: Layout, span: Placed) -> dict[str, Any]:
    grid, at, after = layout.grid, span.before, span.after
    return {
        "kind": span.kind,
        "text": span.text[:200],
        "start": at.start,
        "end": at.end,
        "phase": None if grid is None else grid.phase(at.start),
        "depth": at.depth,
        "straddles": span.straddles,
        "uncompressed": span.near,
        "needle": at.needle,
        "accuracy": None if span.claim is None else span.claim.accuracy,
        "after": None
        if after is None
        else {
            "start": after.start,
            "end": after.end,
            "phase": None if grid is None else grid.phase(after.start),
            "straddles": span.straddles_after,
            "accuracy": None if span.claim_after is None else span.claim_after.accuracy,
            "copy": span.copy,
        },
        "options": [asdict(option) for option in span.options],
        "cheapest": span.cheapest,
    }


def _verified_json(found: Verified) -> dict[str, Any]:
    return {
        **asdict(found),
        "answers": [{"before": before, "after": after} for before, after in found.answers],
    }


__all__ = ["layout_json", "show_layout"]
