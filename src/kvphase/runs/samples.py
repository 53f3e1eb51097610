"""Where the facts of graded samples stand, by a tokenizer that the user gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.formats import Unusable
from kvphase.probes.imported import ImportedRows
from kvphase.probes.residues import Residues, residues
from kvphase.runs.check import run_sync
from kvphase.runs.shift_place import common
from kvphase.tokens import FileTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.probes.samples import Sample, Samples


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Samples as rows to be analysed."""

    rows: ImportedRows
    residues: Residues
    unusable: tuple[Unusable, ...]
    """Samples that could not be placed."""
    rotation_known: bool
    """False for chats: the template's own tokens before the first text are not in the file, so
    all residues may be turned by one and the same number."""


def place(samples: Samples, tokenizer: Path, modulus: int) -> PlacedRows:
    """Count tokens up to each sample's fact.

    Args:
        samples: As read.
        tokenizer: A ``tokenizer.json``; its BOS counts.
        modulus: A further one for the histogram.

    Raises:
        UsageError: no tokenizer, or fewer than two samples can be placed.
    """
    return run_sync(_placed(samples, FileTokenizer(tokenizer), modulus))


async def _placed(samples: Samples, tokenizer: FileTokenizer, modulus: int) -> PlacedRows:
    kept, other = _alike(samples.samples)
    bad = [*samples.unusable]
    bad += [Unusable(one.line, message("dataset.other-roles")) for one in other]
    chat = bool(kept[0].roles)
    positions = [await _position(one, tokenizer) for one in kept]
    if len(positions) < 2:
        raise UsageError(message("dataset.one-row", file=samples.name))
    names = {name: n for n, name in enumerate(dict.fromkeys(one.name for one in kept))}
    cluster = np.array([names[one.name] for one in kept], dtype=np.int64)
    rows = ImportedRows(
        np.array(positions, dtype=np.int64),
        np.array([one.correct for one in kept], dtype=np.int8),
        cluster if len(names) < len(kept) else None,
        source=samples.name,
    )
    return PlacedRows(rows, residues(positions, (modulus,)), tuple(bad), rotation_known=not chat)


def _alike(samples: tuple[Sample, ...]) -> tuple[list[Sample], list[Sample]]:
    """Samples with the commonest roles up to their fact, and the others.

    A template puts as many tokens before each message of one role as before another's: only where
    the roles are the same are the unknown tokens as many.
    """
    lead = [one.roles[: one.fact.text + 1] for one in samples]
    usual = Counter(lead).most_common(1)[0][0]
    kept = [one for one, roles in zip(samples, lead, strict=True) if roles == usual]
    return kept, [one for one, roles in zip(samples, lead, strict=True) if roles != usual]


async def _position(sample: Sample, tokenizer: FileTokenizer) -> int:
    """Token index of the fact; of a chat without the template's own tokens."""
    fact = sample.fact
    text = sample.texts[fact.text]
    before = sample.texts[: fact.text]
    whole, start, *earlier = await tokenizer.tokenize(
        [text, text[: fact.begin], *before], special=True
    )
    lead = 0 if whole[: len(tokenizer.bos)] == list(tokenizer.bos) else len(tokenizer.bos)
    # A word's own space belongs to its token: what stands before may end in another token.
    return lead + sum(map(len, earlier)) + common(start, whole)


__all__ = ["PlacedRows", "place"]
