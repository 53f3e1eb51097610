"""What stands in a prompt besides its positions: records, filler, and the names of asks."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kvphase.types import Arm, Ask, Vocab, Word


def record_ids(vocab: Vocab, key: Word, value: Word, *, dense: bool = False) -> list[int]:
    """The four tokens of a record: key, separator, value, terminator; a dense one has no marks."""
    if dense:
        return [key.id, value.id]
    return [key.id, vocab.separator.id, value.id, vocab.terminator.id]


def filler(rng: np.random.Generator | int, vocab: Vocab, length: int) -> list[int]:
    """``length`` filler ids: phrases in their natural order, entered and left anywhere."""
    rng = np.random.default_rng(rng)
    ids: list[int] = []
    while len(ids) < length:
        phrase = vocab.phrases[int(rng.integers(len(vocab.phrases)))]
        first = 0 if ids else int(rng.integers(len(phrase)))
        ids += [word.id for word in phrase[first:]]
    return ids[: max(0, length)]


def spread(rng: np.random.Generator, available: int, total: int) -> list[int]:
    """``total`` indices below ``available``, none used again before all were used."""
    rounds = -(-total // available)
    drawn = [int(i) for _ in range(rounds) for i in rng.permutation(available)]
    return drawn[:total]


def digest(key: bytes, ordinal: int, arm: Arm) -> str:
    """The id of an ask: of the design (``key``), its place and its arm."""
    return hashlib.blake2b(f"{ordinal}|{arm}".encode(), digest_size=10, key=key).hexdigest()


def design_key(text: str) -> bytes:
    """The key of `digest` for a design spelled as text."""
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def again(ask: Ask, arm: Arm, key: bytes, ordinal: int) -> Ask:
    """The same question under another arm."""
    return replace(ask, id=digest(key, ordinal, arm), arm=arm)
