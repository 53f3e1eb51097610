"""A diagnosis for the terminal and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvphase.causes.opinion import next_steps, verdict
from kvphase.report.lines import clean, left, show
from kvphase.report.terminal import ENGLISH

if TYPE_CHECKING:
    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.causes.base import Finding
    from kvphase.causes.session import Diagnosis

SCHEMA = "kvphase/diagnosis@1"
_STYLES = {"found": "bold red", "not-found": "green", "not-tested": "dim"}
_WIDTH = 12
"""Cells of the column that says what became of a cause."""
_NAMES = ("target", "runtime", "build", "model", "quant", "template", "thinking", "labels", "seed")


def show_diagnosis(found: Diagnosis, out: Console, say: Catalogue = ENGLISH) -> None:
    """The table, the paragraph and the next steps."""
    manifest = found.manifest
    demo = f"   {say('terminal.demo')}" if manifest["toy"] else ""
    show(out, clean(str(manifest["model"] or manifest["target"])) + demo, "bold")
    out.print()
    for one in found.findings:
        show_finding(one, out, say)
    out.print()
    show(out, clean(say.of(verdict(found.findings))))
    out.print()
    show(out, say("diagnose.next"), "bold")
    for number, step in enumerate(next_steps(found.findings), 1):
        show(out, f"{number}. {clean(say.of(step))}", hang="   ")


def show_finding(one: Finding, out: Console, say: Catalogue = ENGLISH) -> None:
    """One line of the table, wrapped: status, cause, evidence, and what would have been seen."""
    status = say(f"diagnose.status.{one.status}")
    name = say(f"diagnose.name.{one.cause}")
    told = clean(say.of(one.evidence))
    if one.status == "not-tested":
        told = say("diagnose.needs", what=told)
    elif one.status == "not-found" and one.would_have_seen is not None:
        would = say("diagnose.would", what=one.would_have_seen)
        told = say("diagnose.line", evidence=told, would=would)
    head = say("diagnose.head", status=left(status, _WIDTH), name=name)
    show(out, f"{head} {told}", _STYLES[one.status], lead=len(head), hang=" " * _WIDTH)


def diagnosis_json(found: Diagnosis) -> str:
    """``kvphase/diagnosis@1``: every cause, the verdict and the next steps."""
    manifest = found.manifest
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "kvphase": manifest["kvphase"],
        **{name: manifest.get(name) for name in _NAMES},
        "demo": manifest["toy"],
        "partial": found.partial,
        "causes": [_cause(one) for one in found.findings],
        "verdict": verdict(found.findings),
        "next_steps": list(next_steps(found.findings)),
        "pair": found.pair is not None,
        "tokens": {name: found.totals[name] for name in ("prefilled", "cached", "generated")},
        "asked": found.totals["asked"],
        "seconds": round(float(found.totals["seconds"] or 0), 3),
    }
    return json.dumps(values, indent=2)


def _cause(one: Finding) -> dict[str, Any]:
    return {
        "cause": one.cause,
        "status": one.status,
        "evidence": one.evidence,
        "would_have_seen": one.would_have_seen,
        "p_value": one.p_value,
        "effect_pp": one.effect_pp,
        "ci95": one.ci95,
        "n": one.n,
    }


__all__ = ["SCHEMA", "diagnosis_json", "show_diagnosis", "show_finding"]
