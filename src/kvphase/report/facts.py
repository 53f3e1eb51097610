"""What the page needs of a run beyond its ``verdict.json``: counted from the run file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING

from kvphase.catalogue import Message
from kvphase.report.lines import clean
from kvphase.runs.store import Store
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kvphase.schema import VerdictFile
    from kvphase.types import Answers

MOST_BINS = 8
_ENOUGH = 12
"""Answers a cell of the heat map should have on average."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DepthCell:
    """Answers whose target stands in one depth bin at one residue."""

    depth: int
    """Index of its bin; 0 is nearest to the start of the prompt."""
    residue: int
    n: int
    correct: int


@dataclass(frozen=True, slots=True)
class Count:
    """How many answers of ``n`` were right at one residue modulo the period."""

    residue: int
    n: int
    correct: int


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """A text that was answered where it was wrong, and how often."""

    text: str
    times: int


@dataclass(frozen=True, slots=True)
class PageFacts:
    """Everything on the page that ``VerdictFile`` lacks; empty for results that were not asked."""

    run: str | None = None
    """Name of the run file, for the command that repeats it."""
    edges: tuple[float, ...] = ()
    """Of the depth bins, as fractions of the prompt: one more than there are bins."""
    depth: tuple[DepthCell, ...] = ()
    folded: tuple[Count, ...] = ()
    """Screen answers of the verdict's rung by position modulo the period."""
    wrong: tuple[WrongAnswer, ...] = ()
    """The commonest wrong answers; ``times`` counts screen answers."""
    wrong_in_all: int = 0
    messages: Mapping[str, Message] = field(default_factory=dict)
    """English texts of the run that can be said in another language, by their text."""


def facts_of(path: Path, document: VerdictFile, run: object = None) -> PageFacts:
    """Count what the page shows from the run file at ``path``; nothing is written.

    Args:
        path: The run file.
        document: Its ``verdict.json``; names the rung that the verdict rests on.
        run: The run as loaded: messages found anywhere in it can be translated.

    Raises:
        StoreError: the file cannot be read.
    """
    with Store.read(path) as store:
        answers = store.answers(stage=document.rung)
    answers = answers.where(answers.arm == Arm.SCREEN.value)
    edges, depth = depth_cells(answers, document.context_tokens, document.modulus)
    wrong = Counter(str(text) for text in answers.text[answers.correct == 0])
    return PageFacts(
        run=path.name if path.is_absolute() else path.as_posix(),
        edges=edges,
        depth=depth,
        folded=fold(answers, document.period),
        wrong=tuple(WrongAnswer(text, times) for text, times in wrong.most_common(_SHOWN)),
        wrong_in_all=wrong.total(),
        messages={clean(text): text for text in _messages(run)},
    )


def depth_cells(
    answers: Answers, context_tokens: int | None, modulus: int
) -> tuple[tuple[float, ...], tuple[DepthCell, ...]]:
    """Edges of the depth bins (fractions of the prompt), and the cells with finished answers.

    Every bin holds as many answers; as many bins as leave about a dozen answers a cell, two to
    eight. No context length (the completion flip) or no answers: no bins.
    """
    import numpy as np

    answers = answers.where(answers.correct >= 0)
    if not context_tokens or not len(answers):
        return (), ()
    bins = min(MOST_BINS, max(2, len(answers) // (modulus * _ENOUGH)))
    edges = np.quantile(answers.position, np.linspace(0, 1, bins + 1))
    edges[-1] += 1
    edges = np.unique(edges)
    bins = len(edges) - 1
    bin_of = np.searchsorted(edges, answers.position, side="right") - 1
    cell = bin_of * modulus + answers.position % modulus
    n = np.bincount(cell, minlength=bins * modulus)
    right = np.bincount(cell, weights=answers.correct, minlength=bins * modulus)
    cells = tuple(
        DepthCell(i // modulus, i % modulus, int(n[i]), int(right[i]))
        for i in range(bins * modulus)
        if n[i]
    )
    return tuple((edges / context_tokens).tolist()), cells


def fold(answers: Answers, period: int | None) -> tuple[Count, ...]:
    """Finished answers by position modulo ``period``; nothing without a period."""
    answers = answers.where(answers.correct >= 0)
    if period is None or not len(answers):
        return ()
    at = answers.position % period
    return tuple(
        Count(r, int((at == r).sum()), int(answers.correct[at == r].sum())) for r in range(period)
    )


def _messages(thing: object) -> Iterator[Message]:
    """Every message in a structure of dataclasses, mappings and sequences."""
    if isinstance(thing, Message):
        yield thing
    elif is_dataclass(thing) and not isinstance(thing, type):
        for part in fields(thing):
            yield from _messages(getattr(thing, part.name))
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from _messages(value)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from _messages(value)
