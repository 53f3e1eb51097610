"""The gap's interval where one request answers several facts: over prompts, not over facts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kvphase.probes.dataset import gap_over_prompts, prompts_of
from kvphase.stats.gap import crossfit
from kvphase.types import Answers, Arm, Gap

RUNS = 400
MODULUS = 4
PROFILE = np.array([0.9, 0.9, 0.6, 0.9])
TRUE_PP = 30.0


def asked(prompts: int, facts: int, rng: np.random.Generator) -> Answers:
    """Facts of a prompt share its requests: whatever befalls one of them befalls all.

    All facts of a prompt stand at one residue, as needles at the starts of equal records do.
    """
    shifts = 2 * MODULUS
    home = np.repeat(rng.integers(64, size=prompts), facts)
    context = np.repeat(np.arange(prompts * facts), shifts)
    pad = np.tile(np.arange(shifts), prompts * facts)
    luck = np.repeat(rng.random((prompts, shifts)), facts, axis=0).reshape(-1)
    position = home[context] + pad
    n = len(context)
    unknown = np.full(n, np.nan)
    return Answers(
        position=position,
        correct=(luck < PROFILE[position % MODULUS]).astype(np.int8),
        logprob=unknown,
        item=context,
        block=np.zeros(n, np.int64),
        context=context,
        pad=pad,
        arm=np.full(n, Arm.SCREEN.value),
        text=np.full(n, ""),
        margin=unknown,
        question=np.full(n, -1),
        against=unknown,
    )


@pytest.mark.parametrize(("prompts", "facts"), [(24, 4), (60, 2)])
def test_the_interval_covers_where_facts_share_requests(prompts: int, facts: int) -> None:
    # At 95% fewer than 364 of 400 come with probability .0004.
    assert stats.binom.cdf(363, RUNS, 0.95) < 0.001
    rng = np.random.default_rng(11)
    covered = over_facts = 0
    for seed in range(RUNS):
        answers = asked(prompts, facts, rng)
        sizes = [facts] * prompts
        gap = gap_over_prompts(Gap(0.0, 0.0), answers, sizes, MODULUS, MODULUS, seed)
        assert gap.ci95 is not None
        assert gap.over == "prompts"
        # Named phases may both be good ones: then the gap that is measured is a smaller one.
        covered += gap.ci95[0] <= TRUE_PP <= gap.ci95[1]
        right = answers.correct.astype(np.float64)
        split = np.random.default_rng(seed)
        old = crossfit(right, answers.position % MODULUS, answers.context, split)
        assert old is not None
        over_facts += old.ci95[0] <= TRUE_PP <= old.ci95[1]
    assert covered >= 364, covered
    assert over_facts < 364, over_facts


def test_few_prompts_are_taken_apart_by_cycle() -> None:
    answers = asked(5, 3, np.random.default_rng(2))
    gap = gap_over_prompts(Gap(0.0, 0.0), answers, [3] * 5, MODULUS, MODULUS, 0)
    assert gap.over == "cycles in 5 prompts"
    assert gap.ci95 is not None
    alone = asked(1, 3, np.random.default_rng(2))
    none = gap_over_prompts(Gap(1.0, 0.0, 2.0, (1.0, 3.0)), alone, [3], MODULUS, MODULUS, 0)
    assert (none.raw_pp, none.crossfit_pp, none.ci95) == (1.0, None, None)
    assert prompts_of([2, 1, 3]).tolist() == [0, 0, 1, 2, 2, 2]
