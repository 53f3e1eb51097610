"""Lookup data: a context of key-value records, then questions about them.

One sequence reads (spaces belong to the words)::

    <s> so it went  cat : Alice ;  where it  dog : Bob ;  ...  had to   dog : Bob ;  cat :
    |   offset      record         spacer    record            rest     demo         question

The start offset is uniform on 0..127. Between records stands a spacer of 0..7 filler tokens (the
*in-sequence* design) or nothing (*prefix padding*: all filler before the first record, its
complement after the last). So the position of a key is uniform modulo every small number, and no
position is tied to the content. Fillers are cut from a stream of natural phrases. All positions
are indices into the final sequence, where ``<s>`` is 0.

Training also sees *dense* records of two tokens, packed and asked by the key alone::

    <s> so it went  cat Alice dog Bob cow Carol ...  had to   dog Bob cow Carol cat
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Batch", "Context", "Lookups", "Vocabulary", "load_vocabulary"]

Design = Literal["insequence", "prefix"]

OFFSETS = 128  # start offsets and complements are uniform below this
SHORT = 16  # the same in short training sequences
SPACERS = 8  # spacer lengths are uniform below this
STREAM = 1 << 16  # tokens of filler that slices are cut from
RECORD = 4  # key, separator, value, terminator


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token strings in id order and the ids of each kind of word."""

    tokens: tuple[str, ...]
    bos: int
    separator: int
    terminator: int
    keys: tuple[int, ...]
    values: tuple[int, ...]
    phrases: tuple[tuple[int, ...], ...]
    """Natural phrases, each a run of filler ids."""


def load_vocabulary() -> Vocabulary:
    """Read the toy tokenizer that ships with the package (``data/toys/vocab.json``)."""
    text = resources.files("kvphase").joinpath("data/toys/vocab.json").read_text("utf-8")
    raw = json.loads(text)
    index = {token: number for number, token in enumerate(raw["tokens"])}
    return Vocabulary(
        tokens=tuple(raw["tokens"]),
        bos=index[raw["bos"]],
        separator=index[raw["separator"]],
        terminator=index[raw["terminator"]],
        keys=tuple(index[key] for key in raw["keys"]),
        values=tuple(index[value] for value in raw["values"]),
        phrases=tuple(tuple(index[word] for word in phrase) for phrase in raw["phrases"]),
    )


class Context(NamedTuple):
    """One context without its questions."""

    ids: list[int]
    """BOS, offset, records with spacers, complement."""
    keys: NDArray[np.int64]
    """Key ids ``[records]``, distinct."""
    values: NDArray[np.int64]
    """Value ids ``[records]``, distinct."""
    positions: NDArray[np.int64]
    """Where each record's key stands in ``ids``, ``[records]``."""


class Batch(NamedTuple):
    """Training sequences of one number of records, padded on the right with terminators."""

    ids: NDArray[np.int64]
    """Tokens ``[B, T]``."""
    columns: NDArray[np.int64]
    """Positions whose next token is the answer, ``[B, Q]``: separators, or keys if dense."""
    answers: NDArray[np.int64]
    """Expected value ids, ``[B, Q]``."""
    targets: NDArray[np.int64]
    """Positions of the asked records' keys in the context, ``[B, Q]``."""


class Lookups:
    """Draws contexts and training batches; the same generator state gives the same data."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        prefix_share: float = 0.25,
        short_share: float = 0.75,
        *,
        phase_locked: bool = False,
    ) -> None:
        """Prepare the filler stream.

        Args:
            vocabulary: The toy tokenizer.
            prefix_share: Fraction of training sequences in the prefix-padding design.
            short_share: Fraction of training batches whose start offsets and complements are
                below 16; they cost less and teach the same.
            phase_locked: No start offset and no spacers: every key stands on the same residue, as
                in lookups as they are usually generated. Only to show what that does.
        """
        self.vocabulary = vocabulary
        self.prefix_share: float = prefix_share
        self.short_share: float = short_share
        self.phase_locked: bool = phase_locked
        rng = np.random.default_rng(0)
        stream: list[int] = []
        while len(stream) < STREAM:
            stream.extend(vocabulary.phrases[rng.integers(len(vocabulary.phrases))])
        self._stream = stream

    @property
    def max_records(self) -> int:
        """The most records a context can hold: keys and values are distinct."""
        return min(len(self.vocabulary.keys), len(self.vocabulary.values))

    def filler(self, rng: np.random.Generator, length: int) -> list[int]:
        """Cut ``length`` filler ids from the stream of phrases, starting anywhere."""
        start = int(rng.integers(STREAM - length))
        return self._stream[start : start + length]

    def record(self, key: int, value: int, *, dense: bool = False) -> list[int]:
        """Return the four ids of a record; only key and value where it is ``dense``."""
        if dense:
            return [key, value]
        return [key, self.vocabulary.separator, value, self.vocabulary.terminator]

    def context(
        self,
        rng: np.random.Generator,
        records: int,
        design: Design,
        offsets: int = OFFSETS,
        *,
        dense: bool = False,
        level: bool = False,
    ) -> Context:
        """Draw a context.

        Args:
            rng: Source of all randomness.
            records: Number of records.
            design: Where the fillers stand.
            offsets: The start offset and the complement are uniform below this.
            dense: Records of two tokens, key and value.
            level: Let the complement make up for offset and spacers, so that all contexts have
                one length and the question always stands at the same position. Prefix padding
                always does; in training the in-sequence complement is random.

        Raises:
            ValueError: If there are not that many distinct keys and values.
        """
        if not 1 <= records <= self.max_records:
            raise ValueError(f"{records} records do not fit: 1 to {self.max_records} do")
        keys = rng.choice(self.vocabulary.keys, records, replace=False)
        values = rng.choice(self.vocabulary.values, records, replace=False)
        offset = int(rng.integers(offsets))
        spacers = rng.integers(SPACERS, size=records) * (design == "insequence")
        if self.phase_locked:
            offset, spacers = 0, 0 * spacers
        ids = [self.vocabulary.bos, *self.filler(rng, offset)]
        positions = []
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            if number:
                ids += self.filler(rng, int(spacers[number]))
            positions.append(len(ids))
            ids += self.record(int(key), int(value), dense=dense)
        if level or design == "prefix":
            most = offsets - 1 + (records - 1) * (SPACERS - 1) * (design == "insequence")
            rest = most - offset - int(spacers[1:].sum())
        else:
            rest = int(rng.integers(offsets))
        ids += self.filler(rng, rest)
        return Context(ids, keys, values, np.array(positions))

    def ask(self, context: Context, order: Sequence[int], *, dense: bool = False) -> list[int]:
        """Return the demonstrations (records of the context again) in ``order``."""
        ids: list[int] = []
        for number in order:
            key, value = int(context.keys[number]), int(context.values[number])
            ids += self.record(key, value, dense=dense)
        return ids

    def batch(
        self,
        rng: np.random.Generator,
        records: int,
        tokens: int,
        questions: int,
        *,
        dense: bool = False,
    ) -> Batch:
        """Draw sequences that each end in ``questions`` questions with their answers.

        There are as many as make up about ``tokens`` tokens. Every question is drawn anew, so
        that the answers given so far say nothing about the next one.

        Args:
            rng: Source of all randomness.
            records: Number of records in each sequence.
            tokens: Size of the batch, roughly.
            questions: Number of questions in each sequence.
            dense: Packed records of two tokens, key and value, asked by the key alone.
        """
        sequences: list[list[int]] = []
        columns: list[NDArray[np.int64]] = []
        answers: list[NDArray[np.int64]] = []
        targets: list[NDArray[np.int64]] = []
        offsets = SHORT if rng.random() < self.short_share else OFFSETS
        length = 2 if dense else RECORD
        expected = offsets + records * (length + SPACERS // 2) + length * questions
        size = max(1, tokens // expected)
        for _ in range(size):
            packed = rng.random() < self.prefix_share or dense
            design: Design = "prefix" if packed else "insequence"
            context = self.context(rng, records, design, offsets, dense=dense)
            order = rng.integers(records, size=questions)
            columns.append(len(context.ids) + length * np.arange(questions) + (not dense))
            answers.append(context.values[order])
            targets.append(context.positions[order])
            sequences.append(context.ids + self.ask(context, order.tolist(), dense=dense))
        longest = -(-max(map(len, sequences)) // 16) * 16  # few lengths, so masks are reused
        ids = np.full((size, longest), self.vocabulary.terminator, dtype=np.int64)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = sequence
        return Batch(
            ids=ids,
            columns=np.stack(columns),
            answers=np.stack(answers),
            targets=np.stack(targets),
        )
