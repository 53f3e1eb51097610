from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import small_vocab
from kvphase.probes.design import NeedleDesign
from kvphase.probes.needle import NeedlePlan, plan_needle
from kvphase.probes.pilot import AIM, HIGH, LOW, QUESTIONS, pilot
from kvphase.types import Answers, Arm, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvphase.types import Ask

VOCAB = small_vocab(keys=300)
LIMITS = Limits(8192, local_window=16, bos=(0,))


def plans(records: int, attempt: int) -> NeedlePlan:
    design = NeedleDesign("insequence", 4096, records, 1, window=16, repeats=0, cold=0, alone=0)
    return plan_needle(VOCAB, LIMITS, design, 100 + attempt, balanced=False)


def answered(asks: Sequence[Ask], right: int) -> Answers:
    n = len(asks)
    return Answers(
        position=np.array([a.target for a in asks]),
        correct=(np.arange(n) < right).astype(np.int8),
        logprob=np.full(n, np.nan),
        item=np.arange(n),
        block=np.zeros(n, np.int64),
        context=np.zeros(n, np.int64),
        pad=np.zeros(n, np.int64),
        arm=np.array([a.arm.value for a in asks]),
        text=np.full(n, ""),
        margin=np.full(n, np.nan),
        question=np.full(n, -1),
        against=np.full(n, np.nan),
    )


def settled(rate: Callable[[int], float], start: int, tries: int) -> tuple[int, dict[int, float]]:
    """The records a pilot settles on for a model that is right at this rate, and what it saw."""
    flow = pilot(plans, start, 8, 256, 8, tries)
    asks = next(flow)
    seen: dict[int, float] = {}
    while True:
        assert {ask.arm for ask in asks} == {Arm.PILOT}
        assert len(asks) <= QUESTIONS
        records = sum(1 for token in asks[0].prefix if token == VOCAB.terminator.id) - 8
        right = round(rate(records) * len(asks))
        seen[records] = right / len(asks)
        try:
            asks = flow.send(answered(asks, right))
        except StopIteration as stop:
            return stop.value, seen


@given(half=st.integers(4, 2000), start=st.sampled_from([8, 24, 64, 256]), tries=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_it_settles_on_what_it_tried_and_nearest_the_aim(half: int, start: int, tries: int) -> None:
    """A model whose accuracy falls to a half at ``half`` records."""
    records, seen = settled(lambda n: 1 / (1 + (n / half) ** 2), start, tries)
    assert records in seen
    assert len(seen) <= tries
    assert all(8 <= n <= 256 and n % 8 == 0 for n in seen)
    assert abs(seen[records] - AIM) == min(abs(mean - AIM) for mean in seen.values())


@pytest.mark.parametrize("half", [12, 30, 80, 200, 400])
def test_five_tries_find_a_mean_that_will_do(half: int) -> None:
    records, seen = settled(lambda n: 1 / (1 + (n / half) ** 2), 24, 5)
    assert LOW <= seen[records] <= HIGH


def test_what_cannot_be_made_harder_or_easier_ends_at_the_bound() -> None:
    assert settled(lambda _: 1.0, 24, 5)[0] == 256
    assert settled(lambda _: 0.0, 24, 5)[0] == 8


def test_the_first_good_number_is_kept_whatever_else_there_is() -> None:
    assert settled(lambda _: 0.6, 24, 5)[1].keys() == {24}
