from __future__ import annotations

import numpy as np
import pytest

from kvphase.stats.power import mde_pp
from kvphase.stats.score import scores
from kvphase.stats.series import PERIODS, per_answer, per_prefill, screen_candidates
from kvphase.stats.simulate import answer, constant, insequence, periodic, prefix


def test_five_thousand_answers_see_about_ten_points() -> None:
    rng = np.random.default_rng(1)
    series = per_answer(answer(insequence(rng, records=1250), constant(0.8), rng))
    found = mde_pp(series, PERIODS, 0.005)
    assert found is not None
    assert found == pytest.approx(11.4, abs=0.5)
    quarter = per_answer(answer(insequence(rng, records=312), constant(0.8), rng))
    assert mde_pp(quarter, PERIODS, 0.005) == pytest.approx(2 * found, rel=0.1)


def test_a_gap_of_that_size_is_found_at_least_as_often_as_promised() -> None:
    hits = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        layout = insequence(rng, records=240)
        flat = per_answer(answer(layout, constant(0.7), rng))
        size = mde_pp(flat, screen_candidates(flat), 0.005)
        assert size is not None
        slot = periodic(0.7, [size / 100] * 7 + [0.0])
        series = per_answer(answer(layout, slot, rng))
        prepared = scores(series, screen_candidates(series))
        log_p = prepared.log_p(series.outcome[None, :] @ prepared.matrix)
        hits += log_p.min() <= np.log(0.005 / len(prepared.periods))
    # 95% of 40 is 38; P(fewer than 33) is below .001.
    assert hits >= 33


@pytest.mark.parametrize(("mean", "records"), [(0.9, 120), (0.95, 480)])
def test_the_promise_holds_near_the_ceiling(mean: float, records: int) -> None:
    """A weak slot's answers vary more than those of a run that is nearly all right.

    One slot of three; the score statistic alone, with its Bonferroni level.
    """
    runs, hits = 300, 0
    rng = np.random.default_rng(5)
    for _ in range(3):
        layout = insequence(rng, records=records)
        flat = per_answer(answer(layout, constant(mean), rng))
        candidates = screen_candidates(flat)
        size = mde_pp(flat, candidates, 0.005)
        assert size is not None
        gap = min(size / 100, 3 * (1 - mean))
        slot = np.array([mean - 2 * gap / 3, mean + gap / 3, mean + gap / 3])
        chance = slot[layout.position % 3]
        prepared = scores(
            per_answer(answer(layout, periodic(mean, slot.tolist()), rng)), candidates
        )
        outcomes = (rng.random((runs // 3, len(chance))) < chance).astype(float)
        level = np.log(0.005 / len(candidates))
        hits += int(prepared.reach(outcomes @ prepared.matrix, level).sum())
    # P(fewer than 272 of 300 at 95%) is .001; by a noncentral chi-square it was 72% at .9.
    assert hits >= 272


def test_sweeps_have_a_limit_of_their_own() -> None:
    rng = np.random.default_rng(0)
    few, _ = per_prefill(answer(prefix(rng, questions=16), constant(0.7), rng), 8)
    many, _ = per_prefill(answer(prefix(rng, questions=256), constant(0.7), rng), 8)
    small, large = mde_pp(many, (2, 4, 8), 0.005), mde_pp(few, (2, 4, 8), 0.005)
    assert small is not None
    assert large is not None
    assert large == pytest.approx(4 * small, rel=0.3)


def test_a_residue_that_never_occurs_leaves_no_limit() -> None:
    rng = np.random.default_rng(0)
    answers = answer(insequence(rng), constant(0.7), rng)
    even = answers.where(answers.position % 2 == 0)
    assert mde_pp(per_answer(even), (2, 3, 4), 0.005) is None
    assert mde_pp(per_answer(answers), (), 0.005) is None


@pytest.mark.parametrize(
    ("gap", "records", "least"), [(0.40, 96, 19), (0.15, 900, 18)], ids=["40pp", "15pp"]
)
def test_period_four_is_found(gap: float, records: int, least: int) -> None:
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = periodic(0.7, [gap, 0.75 * gap, 0.75 * gap, 0.0])
        series = per_answer(answer(insequence(rng, records=records), truth, rng))
        prepared = scores(series, screen_candidates(series))
        log_p = prepared.log_p(series.outcome[None, :] @ prepared.matrix)
        found += log_p.min() <= np.log(0.005 / len(prepared.periods))
    assert found >= least
