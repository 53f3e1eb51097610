"""Where the records of a needle test stand: positions only, no tokens yet.

Two designs. *In-sequence*: one context holds targets at every residue, spread by random spacers
between the records. *Prefix padding* (the published protocol): records packed without spacers, the
whole block shifted by filler before it, one prefill a pad. Levels and the order of the phases may
differ between the two, so they are never mixed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.types import DesignKind

RECORD, DENSE = 4, 2
"""Tokens of a record: key, separator, value, terminator; of a dense one: key, value."""
OFFSETS = 128
"""The start offset of a context is uniform on 0 .. OFFSETS-1: two full cycles of 64."""
BLOCK = 24
"""Consecutive records over which residues are balanced: a multiple of the usual strides."""
QUESTION = 2
"""Tokens of a question without the template's tail: key, separator. A dense one is the key."""
_CHOICES = 32
"""Layouts drawn in all where contexts are few; of a context's, the most even one is used."""
_DRAWS = 200


@dataclass(frozen=True, slots=True)
class NeedleDesign:
    """Everything that decides which questions a needle test asks, apart from seed and tokenizer."""

    kind: DesignKind
    context_tokens: int
    """Length of every final prompt, the question included."""
    records: int
    """Records in a context besides those that are demonstrated."""
    contexts: int
    """Contexts (in-sequence) or contents, each at ``2 * modulus`` pads (prefix padding)."""
    modulus: int = 8
    demonstrations: int = 4
    window: int = 128
    """Targets nearer to the question than this are not asked: they may stand uncompressed."""
    repeats: int = 100
    """Screen asks of the whole run that are sent once more."""
    cold: int = 100
    """Screen asks of the whole run that are sent with a prefill of their own."""
    alone: int = 100
    """Screen asks of the whole run that are sent while nothing else runs."""
    dense: bool = False
    """Records are a key and a value and nothing else, and the question is a key: the lookups of
    the published small models."""

    @property
    def record(self) -> int:
        """Tokens of a record."""
        return DENSE if self.dense else RECORD

    @property
    def question(self) -> int:
        """Tokens of a question without the template's tail."""
        return 1 if self.dense else QUESTION

    @property
    def pads(self) -> int:
        """Prefills a content is asked at."""
        return 2 * self.modulus if self.kind == "prefix" else 1

    @property
    def step(self) -> int:
        """Prefix padding: every how many records targets share a residue mod ``modulus``."""
        return self.modulus // math.gcd(self.record, self.modulus) if self.kind == "prefix" else 1

    @property
    def asked(self) -> int:
        """Questions a prefill."""
        if self.kind == "insequence":
            return self.records
        return len(_prefix_ordinals(self)[0])

    @property
    def screen(self) -> int:
        """Screen asks of the whole run."""
        return self.asked * self.pads * self.contexts

    def as_json(self) -> dict[str, Any]:
        """The fields, for the manifest; ``dense`` only where it is, so that older runs match."""
        fields = asdict(self)
        return fields if self.dense else {k: v for k, v in fields.items() if k != "dense"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions in one prompt; filler fills whatever is not listed."""

    context: int
    pad: int
    """Filler tokens before the first record (in-sequence) or the step of the sweep (prefix)."""
    starts: tuple[int, ...]
    """Absolute position of each record's key, in order; demonstrated ones included."""
    demonstrated: tuple[int, ...]
    """Indices into ``starts`` of the records that are demonstrated."""
    asked: tuple[int, ...]
    """Indices into ``starts`` of the records that are asked."""
    blocks: tuple[int, ...]
    """Exchangeability block of each asked record."""
    end: int
    """Position of the first demonstration; the question follows the last one."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Depth of the asked targets by residue, kept for the report."""

    residue: tuple[int, ...]
    n: tuple[int, ...]
    mean_depth: tuple[float, ...]
    """Mean target position over prompt length, by residue."""
    sd_depth: tuple[float, ...]
    worst_mean: float
    """Largest difference of a residue's mean depth from the overall mean, in depth's own sd."""
    worst_variance: float
    """Largest relative difference of a residue's depth variance from the overall variance."""


def needed(design: NeedleDesign, start: int, tail: int) -> int:
    """Smallest prompt length that holds ``design``, with as little filler as it allows.

    Args:
        design: The design; its ``context_tokens`` is ignored.
        start: Tokens before the first filler (BOS and template head).
        tail: Tokens of the template after the question.

    Returns:
        Prompt tokens.
    """
    total = design.records + design.demonstrations
    fixed = start + OFFSETS - 1 + _room(design) + _ending(design) + tail
    if design.kind == "prefix":
        return fixed + total * design.record + design.pads - 1
    mean = design.record + (design.modulus - 1) / 2
    # Sums of uniform spacers: four standard deviations of room, so that few draws are refused.
    spread = 4 * math.sqrt(total * (design.modulus**2 - 1) / 12)
    return fixed + math.ceil(total * mean + spread)


def fit(design: NeedleDesign, start: int, tail: int, limit: int) -> None:
    """Refuse a design that does not fit before anything is asked.

    Raises:
        UsageError: with the largest that would fit, or the rule that is broken.
    """
    if design.modulus < 2 or design.records < 1 or design.contexts < 1:
        raise UsageError("modulus must be at least 2, records and questions at least 1")
    if design.kind == "insequence" and design.records % design.modulus:
        raise UsageError(
            f"{design.records} records cannot be balanced over {design.modulus} residues; "
            f"use a multiple of {design.modulus}"
        )
    if design.context_tokens + 1 > limit:
        raise UsageError(
            f"a context of {design.context_tokens} tokens does not fit into the model's {limit}; "
            f"the largest that would is {limit - 1}"
        )
    least = needed(design, start, tail)
    if least <= design.context_tokens:
        return
    unit = design.modulus if design.kind == "insequence" else 1
    fewer = min(design.records, design.context_tokens) // unit * unit
    while fewer > 0 and needed(replace(design, records=fewer), start, tail) > design.context_tokens:
        fewer -= unit
    hint = f"; {fewer} records would fit" if fewer > 0 else ""
    raise UsageError(
        f"{design.records} records need a context of at least {least} tokens, "
        f"not {design.context_tokens}{hint}"
    )


def lay_out(design: NeedleDesign, seed: int, start: int, tail: int) -> list[Layout]:
    """Positions of every prompt of the run, in the order in which they are asked.

    Args:
        design: Checked with ``fit`` before.
        seed: Seed of the run.
        start: Tokens before the first filler (BOS and template head).
        tail: Tokens of the template after the question.

    Returns:
        One layout a prefill: ``contexts`` of them, or ``contexts * pads``.
    """
    end = design.context_tokens - tail - _ending(design)
    layouts = []
    for context in range(design.contexts):
        rng = np.random.default_rng([seed, context, 0])
        if design.kind == "prefix":
            layouts += _prefix_padding(design, context, rng, start, end)
        else:
            layouts.append(_in_sequence(design, context, rng, start, end))
    return layouts


def balance(layouts: Sequence[Layout], design: NeedleDesign) -> Balance:
    """Mean and spread of the asked targets' depth in each residue, pooled over the run."""
    positions = np.concatenate([np.take(x.starts, x.asked) for x in layouts]).astype(np.float64)
    residues = positions.astype(np.int64) % design.modulus
    groups = [positions[residues == r] for r in range(design.modulus)]
    overall, variance = positions.mean(), positions.var()
    size = design.context_tokens
    return Balance(
        residue=tuple(range(design.modulus)),
        n=tuple(len(g) for g in groups),
        mean_depth=tuple(round(float(g.mean()) / size, 5) for g in groups),
        sd_depth=tuple(round(float(g.std()) / size, 5) for g in groups),
        worst_mean=max(abs(float(g.mean() - overall)) for g in groups) / float(variance**0.5),
        worst_variance=max(abs(float(g.var() / variance) - 1) for g in groups),
    )


def _room(design: NeedleDesign) -> int:
    """Filler before the demonstrations that keeps every target out of the local window."""
    return max(0, design.window - design.demonstrations * design.record)


def _ending(design: NeedleDesign) -> int:
    """Tokens of the demonstrations and the question."""
    return design.demonstrations * design.record + design.question


def _in_sequence(
    design: NeedleDesign, context: int, rng: np.random.Generator, start: int, end: int
) -> Layout:
    total = design.records + design.demonstrations
    tail = design.context_tokens - end - _ending(design)
    stretch = (design.context_tokens - needed(design, start, tail)) // total
    best: tuple[float, int, list[int], list[int]] | None = None
    for draw in range(_DRAWS):
        residues = _residues(design.records, design.modulus, rng)
        demonstrated = np.sort(rng.choice(total, design.demonstrations, replace=False)).tolist()
        offset = int(rng.integers(OFFSETS))
        starts = _walk(design, start + offset, residues, set(demonstrated), stretch, rng)
        if starts[-1] + design.record + _room(design) <= end:
            uneven = _unevenness(np.delete(starts, demonstrated), residues, design.modulus)
            if best is None or uneven < best[0]:
                best = (uneven, offset, starts, demonstrated)
        if best is not None and draw + 1 >= _CHOICES // design.contexts:
            break
    if best is None:  # with four standard deviations of room this does not happen
        raise AssertionError(f"no layout of {total} records fits {design.context_tokens} tokens")
    _, offset, starts, demonstrated = best
    asked = [i for i in range(total) if i not in set(demonstrated)]
    size = _block_size(design.modulus)
    return Layout(
        context=context,
        pad=offset,
        starts=tuple(starts),
        demonstrated=tuple(demonstrated),
        asked=tuple(asked),
        blocks=tuple(i // size for i in range(len(asked))),
        end=end,
    )


def _unevenness(starts: NDArray[np.int64], residues: NDArray[np.int64], modulus: int) -> float:
    """Squared differences of mean and variance of depth between residues, in depth's own sd."""
    x = (starts - starts.mean()) / (starts.std() or 1)
    n = np.bincount(residues, minlength=modulus)
    mean = np.bincount(residues, weights=x, minlength=modulus) / n
    square = np.bincount(residues, weights=x * x, minlength=modulus) / n
    return float((mean**2).sum() + ((square - 1) ** 2).sum() / 4)


def _walk(
    design: NeedleDesign,
    position: int,
    residues: NDArray[np.int64],
    demonstrated: set[int],
    stretch: int,
    rng: np.random.Generator,
) -> list[int]:
    """Key positions; each asked record's spacer is what brings it to its residue."""
    queue = iter(residues.tolist())
    starts = []
    for index in range(design.records + design.demonstrations):
        position += stretch
        if index in demonstrated:
            position += int(rng.integers(design.modulus))
        else:
            position += (next(queue) - position) % design.modulus
        starts.append(position)
        position += design.record
    return starts


def _block_size(modulus: int) -> int:
    return BLOCK if BLOCK % modulus == 0 else modulus


def _residues(records: int, modulus: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A residue for each asked record: equal counts in each block, depth balanced over residues.

    Starts from a random order in each block and swaps two records of a block whenever that brings
    the mean and the variance of the ordinals closer together over the residues.
    """
    size = _block_size(modulus)
    order: list[int] = []
    for first in range(0, records, size):
        count = min(size, records - first)
        order += rng.permutation(np.arange(count) % modulus).tolist()
    x = (np.arange(records) - (records - 1) / 2) / math.sqrt((records**2 - 1) / 12 or 1)
    each = records / modulus
    scores = x.tolist()
    first_moment = np.bincount(order, weights=x, minlength=modulus) / each
    second_moment = np.bincount(order, weights=x * x, minlength=modulus) / each - 1
    a, b = first_moment.tolist(), second_moment.tolist()
    for i, d in rng.integers((records, size), size=(15 * records, 2)).tolist():
        low = i - i % size
        j = low + d
        if j >= records or order[i] == order[j]:
            continue
        r, s = order[i], order[j]
        u = (scores[j] - scores[i]) / each
        v = (scores[j] ** 2 - scores[i] ** 2) / each
        change = _square(a[r] + u, b[r] + v) + _square(a[s] - u, b[s] - v)
        if change < _square(a[r], b[r]) + _square(a[s], b[s]):
            a[r], b[r], a[s], b[s] = a[r] + u, b[r] + v, a[s] - u, b[s] - v
            order[i], order[j] = s, r
    return np.array(order, np.int64)


def _square(a: float, b: float) -> float:
    return a * a + b * b / 4


def _prefix_ordinals(design: NeedleDesign) -> tuple[list[int], list[int]]:
    """Records that may be asked (all at one residue) and those that may be demonstrated."""
    total = design.records + design.demonstrations
    if design.step == 1:
        # Every record shares the residue; the demonstrated ones are spread evenly.
        shown = np.linspace(0, total - 1, design.demonstrations, dtype=int).tolist()
        return [i for i in range(total) if i not in shown], shown
    asked = list(range(0, total, design.step))
    return asked, [i for i in range(total) if i % design.step]


def _prefix_padding(
    design: NeedleDesign, context: int, rng: np.random.Generator, start: int, end: int
) -> list[Layout]:
    asked, others = _prefix_ordinals(design)
    shown = np.sort(rng.choice(others, design.demonstrations, replace=False)).tolist()
    total = design.records + design.demonstrations
    spare = end - _room(design) - start - total * design.record - (design.pads - 1)
    # The published protocol puts the target near the middle: the filler is shared out at random,
    # and the complement keeps the question where it is.
    lead = int(rng.integers(spare + 1))
    return [
        Layout(
            context=context,
            pad=pad,
            starts=tuple(start + lead + pad + design.record * i for i in range(total)),
            demonstrated=tuple(shown),
            asked=tuple(asked),
            blocks=(0,) * len(asked),
            end=end,
        )
        for pad in range(design.pads)
    ]
