"""A gate's decision for the terminal and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvphase.decide.bounds import LEVEL
from kvphase.report.compared import length_name
from kvphase.report.lines import clean, show
from kvphase.report.terminal import ENGLISH

if TYPE_CHECKING:
    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.decide.gate import Gate, Gated

SCHEMA = "kvphase/gate@1"
_STYLES = {"pass": "bold green", "fail": "bold red", "cannot-tell": "bold yellow"}


def show_gate(found: Gate, out: Console, say: Catalogue = ENGLISH) -> None:
    """One line why; then what it rests on, length by length."""
    name = say(f"decide.name.{found.outcome}")
    first = next(one for one in found.lengths if one.outcome == found.outcome)
    why = clean(say.of(first.why))
    if len(found.lengths) > 1 and found.outcome != "pass":
        why = say("decide.gate.at", rung=length_name(first.rung, say), why=why)
    style = _STYLES[found.outcome]
    show(out, say("decide.gate.line", name=name, why=why), style, lead=len(name))
    suite = found.run.suite
    if suite is not None:
        values = {"digest": suite.digest, "tasks": suite.tasks, "flips": suite.flips}
        show(out, say("decide.gate.suite", **values), "dim")
    for one in found.lengths:
        rest = "rest" if suite is None else f"rest-{one.over}"
        _show_length(one, out, say, rest=rest, several=len(found.lengths) > 1)
    if found.run.toy:
        show(out, say("terminal.demo"), "dim")


def _show_length(one: Gated, out: Console, say: Catalogue, *, rest: str, several: bool) -> None:
    if several:
        why = clean(say.of(one.why))
        name = say(f"decide.name.{one.outcome}")
        line = say("decide.gate.line", name=name, why=why)
        show(out, say("decide.gate.at", rung=length_name(one.rung, say), why=line))
    if one.fold is not None and one.lowest is not None:
        show(
            out,
            say(
                f"decide.gate.{rest}",
                contexts=one.contexts,
                n=one.n,
                fold=one.fold,
                lowest=100 * one.lowest,
                at=one.lowest_at,
                gap=one.raw_gap_pp,
            ),
            "dim",
        )
    if one.settle is not None:
        show(out, say("decide.gate.settle", what=clean(say.of(one.settle))))


def gate_json(found: Gate) -> str:
    """``kvphase/gate@1``: the decision, the bounds and what they rest on."""
    run = found.run
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "file": run.name,
        "model": run.title,
        "target": run.target,
        "build": run.build,
        "quant": run.quant,
        "labels": run.labels,
        "demo": run.toy,
        "outcome": found.outcome,
        "pass": found.outcome == "pass",
        "limits": {"worst": found.limits.worst, "max_gap_pp": found.limits.gap_pp},
        "confidence": 1.0 - LEVEL,
        "suite": None if run.suite is None else asdict(run.suite),
        "lengths": [_length_json(one) for one in found.lengths],
    }
    return json.dumps(values, indent=2)


def _length_json(one: Gated) -> dict[str, Any]:
    return {
        "rung": one.rung,
        "outcome": one.outcome,
        "why": one.why,
        "would_settle": one.settle,
        "over": one.over,
        "phases": one.fold,
        "n": one.n,
        "contexts": one.contexts,
        "seen": {
            "lowest": one.lowest,
            "lowest_residue": one.lowest_at,
            "raw_gap_pp": one.raw_gap_pp,
        },
        "bounds": None if one.bounds is None else asdict(one.bounds),
    }
