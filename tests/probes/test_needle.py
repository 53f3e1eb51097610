from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import PHRASE, small_vocab
from kvphase.errors import UsageError
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import CHAT_TOKENS, plan_needle
from kvphase.types import Arm, Limits, Template

if TYPE_CHECKING:
    from kvphase.types import Ask, DesignKind

LIMITS = Limits(8192, local_window=16, bos=(0,))
TEMPLATE = Template((500, 501), (600, 601, 602), "<user>", "<end><model>", "abc")


def a_design(kind: DesignKind = "insequence", **changes: int) -> NeedleDesign:
    fields: dict[str, Any] = {"context_tokens": 900, "records": 48, "contexts": 3, "window": 16}
    fields |= changes
    return NeedleDesign(kind, **fields)


def all_asks(design: NeedleDesign, seed: int = 0, template: Template | None = None) -> list[Ask]:
    plan = plan_needle(small_vocab(), LIMITS, design, seed, template)
    return [ask for batch in plan.batches() for ask in batch]


@given(
    kind=st.sampled_from(["insequence", "prefix"]),
    modulus=st.sampled_from([2, 4, 8]),
    chat=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_every_prompt_is_what_its_ask_says(
    kind: DesignKind, modulus: int, chat: bool, seed: int
) -> None:
    vocab, template = small_vocab(), TEMPLATE if chat else Template()
    design = a_design(kind, modulus=modulus)
    words = {w.id: w.text for w in (*vocab.keys, *vocab.values, vocab.separator, vocab.terminator)}
    for ask in all_asks(design, seed, template):
        prompt = ask.prompt
        assert len(prompt) == design.context_tokens
        assert prompt.count(0) == 1
        assert prompt[0] == 0
        assert prompt[1 : 1 + len(template.head)] == template.head
        key, separator, *tail = ask.suffix
        assert tuple(tail) == template.tail
        assert len(ask.suffix) - len(tail) <= 5
        record = prompt[ask.target : ask.target + 4]
        assert record[:2] == (key, separator)
        assert words[record[2]] == ask.expected == ask.candidates[0]
        assert words[record[3]] == ";"
        # The key stands once before the question: it is not demonstrated, nor anything's value.
        assert ask.prefix.count(key) == 1
        assert ask.generate == (CHAT_TOKENS if chat else 1)


@given(
    kind=st.sampled_from(["insequence", "prefix"]),
    modulus=st.sampled_from([2, 4, 6, 8]),
    chat=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_dense_records_are_a_key_and_a_value(
    kind: DesignKind, modulus: int, chat: bool, seed: int
) -> None:
    vocab, template = small_vocab(), TEMPLATE if chat else Template()
    design = replace(a_design(kind, modulus=modulus), dense=True, demonstrations=8)
    values = {w.id: w.text for w in vocab.values}
    marks = {vocab.separator.id, vocab.terminator.id}
    residues = set()
    for ask in all_asks(design, seed, template):
        assert len(ask.prompt) == design.context_tokens
        assert not marks & set(ask.prompt)
        key, *tail = ask.suffix
        assert tuple(tail) == template.tail
        assert ask.prompt[ask.target] == key
        assert values[ask.prompt[ask.target + 1]] == ask.expected
        assert ask.prefix.count(key) == 1
        assert ask.question == len(ask.prefix)
        residues.add(ask.target % modulus)
    assert residues == set(range(modulus))


def test_only_a_dense_design_says_so() -> None:
    # runs that were begun before there were dense ones must still be recognised
    assert "dense" not in a_design().as_json()
    assert replace(a_design(), dense=True).as_json()["dense"] is True


def test_questions_of_a_context_share_one_prefix_and_come_in_random_order() -> None:
    asks = [a for a in all_asks(a_design()) if a.arm is Arm.SCREEN]
    by_context = [[a for a in asks if a.context == c] for c in range(3)]
    orders = []
    for group in by_context:
        assert len(group) == 48
        assert len({a.prefix for a in group}) == 1
        assert len({a.target for a in group}) == 48
        orders.append([a.target for a in group])
    for order in orders:
        assert order != sorted(order)
        # Spearman's correlation of asking order and depth: |r| above .55 is below 1 in 10,000.
        ranks = np.argsort(np.argsort(order))
        assert abs(np.corrcoef(ranks, np.arange(48))[0, 1]) < 0.55


def test_pads_of_a_content_hold_the_same_words_and_questions() -> None:
    asks = [a for a in all_asks(a_design("prefix", contexts=1)) if a.arm is Arm.SCREEN]
    pads = sorted({a.pad for a in asks})
    assert pads == list(range(16))
    first = {a.item: a for a in asks if a.pad == 0}
    for pad in pads:
        group = [a for a in asks if a.pad == pad]
        assert {a.item for a in group} == set(first)
        assert [a.item for a in group] == list(first)
        for ask in group:
            assert ask.target == first[ask.item].target + pad
            assert (ask.suffix, ask.expected) == (first[ask.item].suffix, first[ask.item].expected)


def test_repeats_and_cold_asks_are_exact_copies_spread_over_the_run() -> None:
    asks = all_asks(a_design(repeats=30, cold=10))
    screen = {(a.context, a.item): a for a in asks if a.arm is Arm.SCREEN}
    for arm, number in ((Arm.REPEAT, 30), (Arm.COLD, 10)):
        again = [a for a in asks if a.arm is arm]
        assert len(again) == number
        assert len({a.id for a in again}) == number
        for ask in again:
            assert ask.prompt == screen[ask.context, ask.item].prompt
        assert {a.context for a in again} == {0, 1, 2}
    assert len({a.id for a in asks}) == len(asks)


def test_fillers_keep_the_natural_order() -> None:
    vocab = small_vocab()
    names = {w.id: w.text.strip() for w in vocab.phrases[0]}
    after = {a: b for a, b in pairwise(PHRASE)}
    pairs = follows = 0
    for ask in all_asks(a_design(contexts=1))[:1]:
        words = [names.get(i) for i in ask.prefix]
        for a, b in pairwise(words):
            if a and b:
                pairs += 1
                follows += after.get(a) == b
    assert pairs > 50
    assert follows / pairs > 0.6


def test_the_same_seed_gives_the_same_asks_and_another_does_not() -> None:
    assert all_asks(a_design(), 4) == all_asks(a_design(), 4)
    assert {a.id for a in all_asks(a_design(), 4)}.isdisjoint(
        {a.id for a in all_asks(a_design(), 5)}
    )


def test_too_few_words_are_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match=r"68 records need 68 one-token words; .* has 64"):
        plan_needle(small_vocab(), LIMITS, a_design(records=64), 0)
