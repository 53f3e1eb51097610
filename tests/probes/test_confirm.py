from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import small_vocab
from kvphase.probes.confirm import (
    FEWEST,
    MOST,
    ConfirmDesign,
    ConfirmPlan,
    contents_for,
    crossed,
    extra_tokens,
)
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import plan_needle
from kvphase.types import Arm, Ask, Limits, Template

VOCAB = small_vocab()
LIMITS = Limits(8192, local_window=16, bos=(0,))
TEMPLATE = Template((500, 501), (600, 601), "<user>", "<end>", "abc")


def a_plan(period: int, seed: int = 0, template: Template | None = None) -> ConfirmPlan:
    design = NeedleDesign("insequence", 900, 48, 2, window=16, repeats=0, cold=0, alone=0)
    base = plan_needle(VOCAB, LIMITS, design, seed, template)
    return ConfirmPlan(base, ConfirmDesign(period, 2, 20))


@given(period=st.integers(2, 16), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_pads_run_over_two_cycles_and_the_question_is_crossed(period: int, seed: int) -> None:
    pads = crossed(period, np.random.default_rng(seed))
    assert sorted(a for a, _ in pads) == list(range(2 * period))
    assert all(b >= 0 and a + b <= extra_tokens(period) for a, b in pads)
    shifts = Counter((a + b) % period for a, b in pads)
    assert set(shifts.values()) == {2}
    for residue in range(period):
        # Two prefills share a target shift; their questions stand at two residues.
        at = [(a + b) % period for a, b in pads if a % period == residue]
        assert len(set(at)) == 2


@given(period=st.sampled_from([2, 3, 4, 8]), chat=st.booleans(), seed=st.integers(0, 500))
@settings(max_examples=12, deadline=None)
def test_every_prompt_is_what_its_ask_says(period: int, chat: bool, seed: int) -> None:
    template = TEMPLATE if chat else Template()
    plan = a_plan(period, seed, template)
    records: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    count = 0
    for batch in plan.batches():
        assert len({ask.prefix for ask in batch}) == 1
        for ask in batch:
            count += 1
            prompt = ask.prompt
            assert prompt[ask.target] == prompt[ask.question or 0] == ask.suffix[0]
            assert ask.question == len(ask.prefix)
            assert prompt.count(0) == 1
            assert prompt[1 : 1 + len(template.head)] == template.head
            assert ask.arm in (Arm.SHIFT, Arm.TAIL)
            assert ask.arm is Arm.SHIFT or ask.pad == 0
            record = prompt[ask.target : ask.target + 4]
            records.setdefault((ask.context, ask.item), set()).add(record)
    assert count == plan.questions
    assert all(len(found) == 1 for found in records.values())


def test_the_same_questions_are_asked_on_every_prefill_each_moved_as_said() -> None:
    plan = a_plan(4)
    batches = list(plan.batches())
    assert len(batches) == plan.design.prefills == 32
    for context in (0, 1):
        mine = [b for b in batches if b[0].context == context]
        items = {frozenset(ask.item for ask in batch) for batch in mine}
        assert len(items) == 1
        home: dict[int, int] = {}
        for batch in mine:
            for ask in batch:
                assert home.setdefault(ask.item, ask.target - ask.pad) == ask.target - ask.pad
    orders = {tuple(ask.item for ask in batch) for batch in batches}
    assert len(orders) == len(batches)


def test_only_the_question_moves_in_the_tail_control() -> None:
    tails = [b for b in a_plan(4).batches() if b[0].arm is Arm.TAIL and b[0].context == 0]
    assert len(tails) == 8
    targets: dict[int, set[int]] = {}
    for batch in tails:
        for ask in batch:
            targets.setdefault(ask.item, set()).add(ask.target)
    assert all(len(found) == 1 for found in targets.values())
    questions = sorted(batch[0].question or 0 for batch in tails)
    assert questions == list(range(questions[0], questions[0] + 8))


def test_prompts_prove_every_prefill() -> None:
    plan = a_plan(4)
    firsts: list[Ask] = [batch[0] for batch in plan.batches()]
    assert plan.prompts() == [ask.prompt for ask in firsts]
    assert len({ask.id for batch in plan.batches() for ask in batch}) == plan.questions


@pytest.mark.parametrize(("gap", "contents"), [(60.0, FEWEST), (0.5, MOST)])
def test_more_contents_for_smaller_gaps(gap: float, contents: int) -> None:
    assert contents_for(4, 24, 0.55, gap) == contents


@given(st.integers(2, 16), st.integers(8, 96), st.floats(0.02, 0.98), st.floats(1, 90))
def test_contents_stay_between_their_bounds(
    period: int, questions: int, mean: float, gap: float
) -> None:
    found = contents_for(period, questions, mean, gap)
    assert FEWEST <= found <= MOST
    assert found <= contents_for(period, questions, mean, gap / 2)
