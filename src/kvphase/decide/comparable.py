"""Which lengths of several runs can be compared, and what differs where none can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Message
    from kvphase.runs.evidence import Evidence, Length

_FIELDS = ("context_tokens", "modulus", "records", "demonstrations", "window")


def common_lengths(
    runs: Sequence[Evidence],
) -> tuple[dict[str, list[Length]], list[Message]]:
    """Lengths that every run has with the same design, by rung, and what is left out and why.

    Args:
        runs: At least two.

    Returns:
        For each rung the runs' lengths in the order of the runs; then a sentence for each rung
        that could not be compared.

    Raises:
        UsageError: fewer than two runs, one of them has no length at all, or nothing can be
            compared; the sentence says exactly what differs.
    """
    _refuse_unlike(runs)
    by_rung = [{length.rung: length for length in run.lengths} for run in runs]
    shared: dict[str, list[Length]] = {}
    left_out: list[Message] = []
    for rung in dict.fromkeys(length.rung for run in runs for length in run.lengths):
        lacking = [run.name for run, known in zip(runs, by_rung, strict=True) if rung not in known]
        if lacking:
            left_out.append(message("decide.lacks", rung=rung, names=", ".join(lacking)))
            continue
        lengths = [known[rung] for known in by_rung]
        problem = _unlike(rung, runs, lengths)
        if problem is None:
            shared[rung] = lengths
        else:
            left_out.append(problem)
    if not shared:
        raise UsageError(_nothing(runs, left_out))
    return shared, left_out


def _refuse_unlike(runs: Sequence[Evidence]) -> None:
    """Refuse what cannot be compared at any length.

    Raises:
        UsageError: fewer than two runs, one without needles, or questions of another kind.
    """
    if len(runs) < 2:
        raise UsageError(message("decide.too-few"))
    for run in runs:
        if not run.lengths:
            raise UsageError(message("decide.no-lengths", name=run.name))
        problem = _asked_differently(runs[0], run)
        if problem is not None:
            raise UsageError(problem)


def _asked_differently(one: Evidence, two: Evidence) -> Message | None:
    """Other prompts, inside a chat template or not, thinking or not: graded otherwise."""
    if (one.suite is None) != (two.suite is None):
        shifted, other = (one, two) if one.suite is not None else (two, one)
        return message("decide.differs-suite", suite=shifted.name, other=other.name)
    if one.suite is not None and two.suite is not None and one.suite.digest != two.suite.digest:
        return _sentence("prompts", one, two, one.suite.digest, two.suite.digest)
    if one.chat is not None and two.chat is not None and one.chat != two.chat:
        inside, plain = (one, two) if one.chat else (two, one)
        return message("decide.differs-chat", inside=inside.name, plain=plain.name)
    if one.chat and two.chat and one.thinking != two.thinking:
        return _sentence("thinking", one, two, one.thinking, two.thinking)
    return None


def _unlike(rung: str, runs: Sequence[Evidence], lengths: Sequence[Length]) -> Message | None:
    """The first thing in which a run's design differs from the first run's."""
    first = lengths[0]
    for run, length in zip(runs[1:], lengths[1:], strict=True):
        for what, one, two in _compared(first, length):
            if one != two:
                why = _sentence(what, runs[0], run, one, two)
                return message("decide.unlike", rung=rung, why=why)
    return None


def _compared(one: Length, two: Length) -> list[tuple[str, Any, Any]]:
    """What must be equal; entries that only one side knows are not compared."""
    parts: list[tuple[str, Any, Any]] = [
        ("kind", one.kind, two.kind),
        ("measure", one.measure, two.measure),
        ("modulus", one.modulus, two.modulus),
    ]
    for name in _FIELDS:
        if name in one.design and name in two.design:
            parts.append((name, one.design[name], two.design[name]))
    return parts


def _nothing(runs: Sequence[Evidence], left_out: Sequence[Message]) -> Message:
    """Why nothing can be compared: designs that differ at one length, or lengths that do."""
    unlike = next((why for why in left_out if why.key == "decide.unlike"), None)
    if unlike is not None:
        return unlike
    first, other = next(
        ((runs[0], run) for run in runs[1:] if not _rungs(runs[0]) & _rungs(run)),
        (runs[0], runs[1]),
    )
    one, two = ", ".join(sorted(_rungs(first))), ", ".join(sorted(_rungs(other)))
    return _sentence("lengths", first, other, one, two)


def _rungs(run: Evidence) -> set[str]:
    return {length.rung for length in run.lengths}


def _sentence(what: str, one: Evidence, two: Evidence, first: object, second: object) -> Message:
    return message(
        "decide.differs",
        what=message(f"decide.what.{what}"),
        one=one.name,
        first=str(first),
        two=two.name,
        second=str(second),
    )
