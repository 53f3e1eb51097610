from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvphase.errors import UsageError
from kvphase.probes.design import (
    BLOCK,
    OFFSETS,
    RECORD,
    NeedleDesign,
    balance,
    fit,
    lay_out,
    needed,
)

if TYPE_CHECKING:
    from kvphase.types import DesignKind

MODULI = (2, 3, 4, 6, 8, 12, 24)


def a_design(kind: DesignKind = "insequence", **changes: int) -> NeedleDesign:
    fields: dict[str, Any] = {"context_tokens": 0, "records": 48, "contexts": 4, **changes}
    design = NeedleDesign(kind, **fields)
    return design if design.context_tokens else replace(design, context_tokens=needed(design, 1, 0))


@given(
    modulus=st.sampled_from(MODULI),
    blocks=st.integers(1, 6),
    extra=st.integers(0, 600),
    seed=st.integers(0, 10_000),
    start=st.integers(0, 40),
    tail=st.integers(0, 12),
    demonstrations=st.integers(0, 8),
)
@settings(max_examples=60, deadline=None)
def test_in_sequence_positions_are_legal_and_residues_equally_often(
    modulus: int, blocks: int, extra: int, seed: int, start: int, tail: int, demonstrations: int
) -> None:
    design = a_design(records=24 * blocks, modulus=modulus, demonstrations=demonstrations)
    design = replace(design, context_tokens=needed(design, start, tail) + extra)
    fit(design, start, tail, 100_000)
    for layout in lay_out(design, seed, start, tail):
        starts = np.array(layout.starts)
        assert starts[0] >= start + layout.pad
        assert 0 <= layout.pad < OFFSETS
        assert (np.diff(starts) >= RECORD).all()
        assert layout.end + demonstrations * RECORD + 2 + tail == design.context_tokens
        # No target is inside the local window of the question.
        question = design.context_tokens - tail - 2
        assert question - starts[-1] - RECORD >= min(design.window, question - layout.end)
        assert question - (starts[list(layout.asked)].max() + RECORD) >= design.window
        residues = starts[list(layout.asked)] % modulus
        blocks_of = np.array(layout.blocks)
        for block in np.unique(blocks_of):
            counts = np.bincount(residues[blocks_of == block], minlength=modulus)
            assert counts.min() == counts.max() == BLOCK // modulus
        assert not set(layout.asked) & set(layout.demonstrated)


@given(modulus=st.sampled_from(MODULI), records=st.integers(16, 80), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_prefix_padding_moves_everything_together_and_keeps_the_question(
    modulus: int, records: int, seed: int
) -> None:
    design = a_design("prefix", records=records, modulus=modulus, contexts=2)
    layouts = lay_out(design, seed, 1, 0)
    assert len(layouts) == 2 * 2 * modulus
    for context in (0, 1):
        of_content = [x for x in layouts if x.context == context]
        first = np.array(of_content[0].starts)
        for pad, layout in enumerate(of_content):
            assert (np.array(layout.starts) == first + pad).all()
            residues = np.array(layout.starts)[list(layout.asked)] % modulus
            assert len(set(residues.tolist())) == 1
            assert layout.end == of_content[0].end
            assert layout.starts[-1] + RECORD <= layout.end


@pytest.mark.parametrize(("records", "contexts"), [(24, 8), (48, 1), (48, 60), (256, 1)])
def test_depth_is_balanced_over_residues(records: int, contexts: int) -> None:
    for seed in range(5):
        design = a_design(records=records, contexts=contexts)
        found = balance(lay_out(design, seed, 1, 0), design)
        assert set(found.n) == {records * contexts // 8}
        assert found.worst_mean < 0.1
        assert found.worst_variance < 0.25


def test_spacers_and_offsets_are_unrelated_to_the_residue() -> None:
    """The filler before a target must not tell its residue: else it could pass for phase."""
    design = a_design(records=48, contexts=200)
    table = np.zeros((8, 8))
    for layout in lay_out(design, 3, 1, 0):
        starts = np.array(layout.starts)
        spacers = np.diff(starts) - RECORD
        for index in layout.asked:
            if index:
                table[starts[index] % 8, spacers[index - 1]] += 1
    rows, columns = table.sum(1, keepdims=True), table.sum(0, keepdims=True)
    expected = rows * columns / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    # Chi-square with 49 degrees of freedom: 85.4 is its 0.1% point. Balancing over blocks of 24
    # makes neighbours slightly unlike, which at 9,600 records must stay below twice that.
    assert statistic < 171


def test_layouts_depend_on_the_seed_alone() -> None:
    design = a_design()
    assert lay_out(design, 5, 1, 0) == lay_out(design, 5, 1, 0)
    assert lay_out(design, 5, 1, 0) != lay_out(design, 6, 1, 0)


def test_more_context_stretches_the_records_over_it() -> None:
    design = a_design(records=24, context_tokens=2000, window=128)
    for layout in lay_out(design, 0, 1, 0):
        assert layout.starts[-1] - layout.starts[0] > 1200


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"context_tokens": 5000}, "the largest that would is 4095"),
        ({"context_tokens": 400, "records": 256}, "256 records need a context of at least"),
        ({"records": 20, "modulus": 8}, "use a multiple of 8"),
        ({"modulus": 1}, "modulus must be at least 2"),
    ],
)
def test_designs_that_cannot_work_are_refused_with_what_would(
    change: dict[str, int], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        fit(a_design("insequence", **change), 1, 0, 4096)
