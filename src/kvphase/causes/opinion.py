"""One plain paragraph from all findings, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.catalogue import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Message
    from kvphase.causes.base import Finding

RUNTIME = ("repeatability", "cache", "split", "decode", "batch", "question")
"""Faults of the server and not of the model."""
STEPS = 3
_URGENT = (
    "repeatability",
    "cache",
    "split",
    "decode",
    "batch",
    "question",
    "generation",
    "length",
    "phase",
    "precision",
    "sampling",
    "template",
    "instructions",
    "depth",
)
"""What to see to first."""


def verdict(findings: Sequence[Finding]) -> Message:
    """What the findings come to, in one paragraph."""
    found = [one for one in findings if one.status == "found"]
    tested = [one for one in findings if one.status != "not-tested"]
    if not found:
        key = "diagnose.verdict.nothing" if tested else "diagnose.verdict.untested"
        return message(key, tested=len(tested), all=len(findings))
    names = {one.cause for one in found}
    what = _joined([message(f"diagnose.name.{one.cause}") for one in found])
    return message(f"diagnose.verdict.{_kind(names)}", what=what, rest=_rest(findings))


def _kind(names: set[str]) -> str:
    faults = bool(names & set(RUNTIME))
    if "phase" in names:
        return "both" if faults else "phase"
    return "runtime" if faults else "other"


def _rest(findings: Sequence[Finding]) -> Message:
    """Whether phase was ruled out, or could not be looked at."""
    phase = next((one for one in findings if one.cause == "phase"), None)
    if phase is None or phase.status == "not-tested":
        return message("diagnose.verdict.phase-untested")
    if phase.status == "not-found":
        return message("diagnose.verdict.phase-not", would=phase.would_have_seen or "")
    return message("diagnose.verdict.phase-found", evidence=phase.evidence)


def _joined(parts: Sequence[Message]) -> Message:
    """A list in words."""
    if len(parts) == 1:
        return parts[0]
    first = _joined(parts[:-1])
    last = parts[-1]
    return message("diagnose.and", first=first, last=last)


def next_steps(findings: Sequence[Finding]) -> tuple[Message, ...]:
    """The three most useful ones, most urgent first."""
    found = {one.cause for one in findings if one.status == "found"}
    steps = [message(f"diagnose.step.{name}") for name in _URGENT if name in found]
    if found & {*RUNTIME, "phase", "length"}:
        steps.insert(1, message("diagnose.step.bundle"))
    untested = {one.cause for one in findings if one.status == "not-tested"}
    if "precision" in untested:
        steps.append(message("diagnose.step.against"))
    steps += [message("diagnose.step.prompt"), message("diagnose.step.longer")]
    return tuple(steps[:STEPS])


__all__ = ["RUNTIME", "next_steps", "verdict"]
