from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvphase.lab.data import Design, Lookups, load_vocabulary

VOCABULARY = load_vocabulary()
DATA = Lookups(VOCABULARY)
DESIGNS: tuple[Design, ...] = ("insequence", "prefix")


def test_vocabulary_words_are_distinct_and_of_one_kind_each() -> None:
    fillers = {token for phrase in VOCABULARY.phrases for token in phrase}
    kinds = [set(VOCABULARY.keys), set(VOCABULARY.values), fillers]
    markers = {VOCABULARY.bos, VOCABULARY.separator, VOCABULARY.terminator}
    assert len(set(VOCABULARY.tokens)) == len(VOCABULARY.tokens)
    assert sum(map(len, kinds)) + len(markers) == len(VOCABULARY.tokens)
    assert set.union(markers, *kinds) == set(range(len(VOCABULARY.tokens)))
    assert len(VOCABULARY.keys) == len(VOCABULARY.values) == 96
    assert VOCABULARY.bos == 0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 96), st.sampled_from(DESIGNS))
def test_positions_point_at_whole_records(seed: int, records: int, design: Design) -> None:
    context = DATA.context(np.random.default_rng(seed), records, design)
    assert context.ids[0] == VOCABULARY.bos
    assert VOCABULARY.bos not in context.ids[1:]
    assert len(set(context.keys.tolist())) == len(set(context.values.tolist())) == records
    for key, value, position in zip(*context[1:], strict=True):
        found = context.ids[position : position + 4]
        assert found == [key, VOCABULARY.separator, value, VOCABULARY.terminator]
    gaps = np.diff(context.positions) - 4
    assert gaps.min(initial=0) >= 0
    assert gaps.max(initial=0) <= (7 if design == "insequence" else 0)


@pytest.mark.parametrize("design", DESIGNS)
def test_key_positions_are_uniform_over_residues(design: Design) -> None:
    rng = np.random.default_rng(3)
    contexts = [DATA.context(rng, 24, design) for _ in range(600)]
    chosen = [context.positions[rng.integers(24)] for context in contexts]  # independent draws
    for modulus in (4, 7, 8, 16):
        counts = np.bincount(np.array(chosen) % modulus, minlength=modulus)
        chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert chi_square < modulus - 1 + 5 * np.sqrt(2 * (modulus - 1))  # far above any p > 1e-5


@pytest.mark.parametrize(("design", "spacers"), [("insequence", 11 * 7), ("prefix", 0)])
def test_level_contexts_have_one_length(design: Design, spacers: int) -> None:
    rng = np.random.default_rng(0)
    lengths = {len(DATA.context(rng, 12, design, level=True).ids) for _ in range(20)}
    assert lengths == {1 + 127 + 48 + spacers}


def test_fillers_follow_the_phrases() -> None:
    follows = {pair for phrase in VOCABULARY.phrases for pair in pairwise(phrase)}
    seams = {(a[-1], b[0]) for a in VOCABULARY.phrases for b in VOCABULARY.phrases}
    run = DATA.filler(np.random.default_rng(1), 500)
    assert len(run) == 500
    assert set(pairwise(run)) <= follows | seams


@pytest.mark.parametrize("records", [2, 24])
def test_batch_asks_what_the_context_holds(records: int) -> None:
    batch = DATA.batch(np.random.default_rng(5), records, 3000, 24)
    rows = np.arange(len(batch.ids))[:, None]
    assert 1500 < batch.ids.size < 4500
    np.testing.assert_array_equal(batch.ids[rows, batch.columns], VOCABULARY.separator)
    np.testing.assert_array_equal(batch.ids[rows, batch.columns + 1], batch.answers)
    keys = batch.ids[rows, batch.columns - 1]
    np.testing.assert_array_equal(batch.ids[rows, batch.targets], keys)
    np.testing.assert_array_equal(batch.ids[rows, batch.targets + 2], batch.answers)


def test_dense_records_are_two_tokens_asked_by_the_key() -> None:
    batch = DATA.batch(np.random.default_rng(5), 8, 3000, 10, dense=True)
    rows = np.arange(len(batch.ids))[:, None]
    np.testing.assert_array_equal(batch.ids[rows, batch.columns + 1], batch.answers)
    np.testing.assert_array_equal(batch.ids[rows, batch.targets], batch.ids[rows, batch.columns])
    np.testing.assert_array_equal(batch.ids[rows, batch.targets + 1], batch.answers)
    assert np.isin(batch.ids[rows, batch.targets], VOCABULARY.keys).all()


def test_earlier_answers_say_nothing_about_the_next() -> None:
    """Each question is drawn anew: the last record asked comes again as often as any other."""
    batch = DATA.batch(np.random.default_rng(5), 4, 60_000, 8)
    again = (batch.targets[:, 1:] == batch.targets[:, :-1]).mean()
    assert again == pytest.approx(0.25, abs=0.03)


def test_too_many_records_are_refused() -> None:
    with pytest.raises(ValueError, match="97 records do not fit"):
        DATA.context(np.random.default_rng(0), 97, "insequence")


def test_the_same_generator_gives_the_same_batch() -> None:
    one, two = (DATA.batch(np.random.default_rng([7, 1]), 8, 900, 10) for _ in range(2))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)


def test_phase_locked_keys_stand_on_one_residue() -> None:
    locked = Lookups(VOCABULARY, phase_locked=True)
    batch = locked.batch(np.random.default_rng(0), 16, 3000, 24)
    assert set((batch.targets % 4).ravel().tolist()) == {1}  # after BOS, in steps of a record
    free = DATA.batch(np.random.default_rng(0), 16, 3000, 24)
    assert set((free.targets % 4).ravel().tolist()) == {0, 1, 2, 3}
