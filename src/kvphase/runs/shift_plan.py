"""From a user's prompts to everything that a shift run asks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.fillers import FAMILIES, FamilyName
from kvphase.probes.shift import BASE, MANY, PHASES, Place, Placed, ShiftPlan, Sweep, Task
from kvphase.runs.shift_grade import check_rule
from kvphase.runs.shift_place import (
    UNKNOWN,
    Base,
    Rendered,
    head_sweeps,
    moved,
    tail_sweep,
)
from kvphase.runs.shift_source import Source, outside
from kvphase.runtimes.adapters import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Runtime

SHORT, LONG, CHAT = 16, 64, 8
"""Answer tokens where nothing says how many: a completion, an answer that is searched, and what a
chat may add before a word that was asked for."""


_WORD = re.compile(r" ?\w{1,40}")
_OPEN = tuple("\"'([{<=/`")
"""Characters behind which an answer follows without a space."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a shift run is asked."""

    seed: int = 0
    full: bool = False
    """Sixteen shifts of four fillers instead of eight of one."""
    move: tuple[Place, ...] = ()
    """Where the marked span is moved to besides."""
    choice: Choice = field(default_factory=Choice)
    """Kind of server, model and tokenizer, where they should not be found out."""


async def plan_shift(runtime: Runtime, sources: Sequence[Source], options: Options) -> ShiftPlan:
    """Place every prompt at every shift with the target's own tokenizer.

    Raises:
        UsageError: a prompt cannot be padded without changing more than positions, does not fit,
            or asks for what cannot be.
    """
    tasks = [
        await _task(runtime, source, options, options.seed + number)
        for number, source in enumerate(sources)
    ]
    return ShiftPlan(tuple(tasks), options.seed, options.full)


async def _task(runtime: Runtime, source: Source, options: Options, seed: int) -> Task:
    rendered = Rendered(runtime)
    check_rule(source.name, source.match, source.answer)
    (ids,) = await rendered.ids([source])
    if max(ids) >= UNKNOWN:
        raise UsageError(await _unspelled(rendered, source))
    answers = await spelled_answers(runtime, rendered, source)
    generate = tokens_to_generate(source, answers.size)
    _must_fit(runtime, source, len(ids), generate)
    base = await _base(rendered, source, ids)
    tail = await tail_sweep(rendered, source, base, FAMILIES, MANY, seed)
    if tail is not None:
        base = replace(base, question=tail.shifted[0].question - BASE)
    sweeps = await head_sweeps(
        rendered, source, base, FAMILIES, MANY, seed, len(FAMILIES) if options.full else 1
    )
    if not sweeps:
        raise UsageError(message("shift.unplaced", name=source.name))
    places = {
        place: await _moved(rendered, source, place, sweeps[0], seed) for place in options.move
    }
    return Task(
        name=source.name,
        expected=answers.expected,
        against=answers.against,
        match=source.match,
        generate=generate,
        plain=Placed(ids, 0, max(base.target, 0), base.question, 0),
        sweeps=tuple(sweeps),
        tail=tail,
        moved=places,
        scored=answers.scored,
        notes=_notes(source, sweeps, tail, options),
    )


async def _unspelled(rendered: Rendered, source: Source) -> str:
    """Names the first character that the model cannot spell, with its word, and its place."""
    (text,) = await rendered.texts([source])
    at = await rendered.unspelled(text)
    before, word = text[:at], _WORD.match(text, at)
    return message(
        "shift.unspelled-at",
        name=source.name,
        character=word[0] if word else text[at : at + 1],
        line=before.count("\n") + 1,
        column=at - before.rfind("\n"),
    )


@dataclass(frozen=True, slots=True)
class _Spelled:
    """An answer as the model would go on from the prompt."""

    text: str
    ids: tuple[int, ...]
    blank: bool
    """Its first token is nothing but a space."""


async def spelled_answers(runtime: Runtime, rendered: Rendered, source: Source) -> _Answers:
    """Right and wrong answer, and whether the right one's first token can be a measure."""
    if source.answer is None:
        return _Answers("" if source.match.startswith("command:") else None)
    if source.match not in ("exact", "choice"):
        return _Answers(source.answer, source.against)
    right = await _spelled(runtime, rendered, source, source.answer)
    told = runtime.limits.top_logprobs > 0 and not right.blank
    if source.against is None:
        return _Answers(right.text, None, len(right.ids), scored=told)
    wrong = await _spelled(runtime, rendered, source, source.against)
    size = max(len(right.ids), len(wrong.ids))
    # Answers that begin alike have one score between them, whichever of them comes.
    return _Answers(right.text, wrong.text, size, scored=told and right.ids[0] != wrong.ids[0])


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is expected of a task."""

    expected: str | None
    against: str | None = None
    size: int = 0
    """Tokens of the longer one."""
    scored: bool = False


async def _spelled(runtime: Runtime, rendered: Rendered, source: Source, answer: str) -> _Spelled:
    """The first spelling, with or without a space before it, that goes on from the prompt.

    Raises:
        UsageError: the answer would re-tokenize the prompt's own end, or cannot be spelled.
    """
    (text,) = await rendered.texts([source])
    bare = answer.strip()
    choices = [bare] if text[-1:].isspace() else [f" {bare}", bare]
    if source.body is not None or text[-1:] in _OPEN:
        choices = choices[::-1]
    longer = [text, f"{text} ", *(text + choice for choice in choices)]
    plain, spaced, *got = await runtime.tokenize(longer, special=True)
    for choice, one in zip(choices, got, strict=True):
        ids = tuple(one[len(plain) :])
        if one[: len(plain)] == plain and _known(ids):
            blank = len(ids) > 1 and spaced == [*plain, ids[0]]
            return _Spelled(choice, ids, blank)
    raise UsageError(message("shift.answer-seam", name=source.name, answer=bare[:60]))


def _known(ids: Sequence[int]) -> bool:
    """Whether the ids are tokens; toys have one for what they cannot spell."""
    return bool(ids) and max(ids) < UNKNOWN


def tokens_to_generate(source: Source, size: int) -> int:
    """Answer tokens to ask for; ``size`` is that of the right answer."""
    if source.tokens is not None:
        return source.tokens
    if source.match in ("exact", "choice") and source.answer is not None:
        return size if source.body is None else size + CHAT
    if source.answer is None and source.match == "exact" and source.body is None:
        return SHORT
    return LONG


def _must_fit(runtime: Runtime, source: Source, size: int, generate: int) -> None:
    """Refuse a prompt whose longest padded form, with its answer, does not fit the context."""
    most = runtime.limits.context_tokens
    longest = size + BASE + MANY - 1 + generate
    if longest > most:
        raise UsageError(
            message("shift.too-long", name=source.name, n=size, needed=longest, most=most)
        )


async def _base(rendered: Rendered, source: Source, ids: tuple[int, ...]) -> Base:
    if source.begin is None:
        return Base(ids, -1, len(ids))
    return Base(ids, await rendered.index(source, source.begin, ids), len(ids))


async def _moved(
    rendered: Rendered, source: Source, place: Place, sweep: Sweep, seed: int
) -> Sweep:
    """The marked span at another place, at four phases.

    Raises:
        UsageError: nothing is marked, or there is no such place.
    """
    other = moved(source, place)
    if other is None:
        raise UsageError(message("shift.no-move", name=source.name, place=place))
    (ids,) = await rendered.ids([other])
    base = await _base(rendered, other, ids)
    family: list[FamilyName] = [one for one in FAMILIES if one == sweep.family]
    sweeps = await head_sweeps(rendered, other, base, [*family, *FAMILIES], PHASES, seed, 1)
    if not sweeps:
        raise UsageError(message("shift.unplaced-move", name=source.name, place=place))
    return sweeps[0]


def _notes(
    source: Source, sweeps: Sequence[Sweep], tail: Sweep | None, options: Options
) -> tuple[str, ...]:
    notes = []
    if source.match in ("exact", "choice", "contains") and (count := outside(source)):
        key = "shift.note-twice" if source.begin is None else "shift.note-elsewhere"
        notes.append(message(key, answer=(source.answer or "").strip()[:60], count=count))
    if source.begin is None:
        notes.append(message("shift.note-unmarked"))
    elif tail is None:
        notes.append(message("shift.note-no-place"))
    if options.full and len(sweeps) < len(FAMILIES):
        had = {sweep.family for sweep in sweeps}
        missing = [message(f"shift.family-{name}") for name in FAMILIES if name not in had]
        for name in missing:
            notes.append(message("shift.note-family", family=name))
    return tuple(notes)
