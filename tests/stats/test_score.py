from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kvphase.stats.period import detect
from kvphase.stats.score import log_chi2_sf, scores
from kvphase.stats.series import PERIODS, Series, counted, per_answer, per_prefill
from kvphase.stats.simulate import answer, by_item, constant, insequence, prefix
from kvphase.types import Answers

if TYPE_CHECKING:
    from numpy.typing import NDArray

CYCLE = int(np.lcm.reduce(PERIODS))


def run(seed: int, *, contexts: int = 3, records: int = 48, mean: float = 0.7) -> Answers:
    rng = np.random.default_rng(seed)
    return answer(insequence(rng, contexts=contexts, records=records), constant(mean), rng)


def statistics(series: Series, periods: tuple[int, ...]) -> NDArray[np.float64]:
    prepared = scores(series, periods)
    values: NDArray[np.float64] = prepared.statistics(series.outcome[None, :] @ prepared.matrix)[0]
    return values


def slow_statistic(answers: Answers, period: int) -> float:
    """The definition, block by block, with explicit loops."""
    score = np.zeros(period)
    covariance = np.zeros((period, period))
    for context in np.unique(answers.context):
        for block in np.unique(answers.block):
            rows = np.flatnonzero((answers.context == context) & (answers.block == block))
            if len(rows) < 2:
                continue
            y = answers.correct[rows].astype(float)
            x = np.zeros((len(rows), period))
            for i, row in enumerate(rows):
                x[i, answers.position[row] % period] = 1.0
            x -= x.mean(axis=0)
            score += x.T @ (y - y.mean())
            covariance += y.var(ddof=1) * (x.T @ x)
    return float(score @ np.linalg.pinv(covariance, hermitian=True) @ score)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4, 7, 8, 12]))
def test_statistic_equals_its_slow_definition(seed: int, period: int) -> None:
    answers = run(seed)
    fast = statistics(per_answer(answers), (period,))[0]
    assert fast == pytest.approx(slow_statistic(answers, period), rel=1e-8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 4, 5]))
def test_one_block_is_pearsons_chi_square(seed: int, period: int) -> None:
    answers = run(seed, contexts=1, records=24, mean=0.5)
    residue = answers.position % period
    table = np.array(
        [
            [np.sum((residue == r) & (answers.correct == c)) for r in np.unique(residue)]
            for c in (0, 1)
        ]
    )
    table = table[table.sum(axis=1) > 0]
    pearson = stats.chi2_contingency(table, correction=False).statistic if len(table) > 1 else 0.0
    ours = statistics(per_answer(answers), (period,))
    assert float(ours.sum()) == pytest.approx(pearson * 23 / 24, abs=1e-8)


def test_counts_give_the_same_statistic_as_their_answers() -> None:
    n, correct = np.array([40, 41, 39, 44]), np.array([30, 20, 33, 36])
    table = np.stack([correct, n - correct])
    pearson = stats.chi2_contingency(table, correction=False).statistic
    ours = statistics(counted(np.arange(4), n, correct), (4,))[0]
    assert ours == pytest.approx(pearson * (n.sum() - 1) / n.sum())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(3)), st.integers(1, 5))
def test_names_of_contexts_and_whole_cycles_do_not_matter(
    seed: int, names: list[int], cycles: int
) -> None:
    answers = run(seed)
    moved = Answers(
        position=answers.position + cycles * CYCLE,
        correct=answers.correct,
        logprob=answers.logprob,
        item=answers.item,
        block=answers.block + 7,
        context=100 + np.array(names)[answers.context],
        pad=answers.pad,
        arm=answers.arm,
        text=answers.text,
        margin=answers.margin,
        question=answers.question,
        against=answers.against,
    )
    periods = (2, 3, 4, 8, 16)
    before, after = per_answer(answers), per_answer(moved)
    assert statistics(after, periods) == pytest.approx(statistics(before, periods), rel=1e-9)


def test_shift_by_whole_cycles_keeps_the_p_value() -> None:
    series = per_answer(run(5))
    shifted = Series(
        phase=series.phase + CYCLE,
        along=series.along + CYCLE,
        outcome=series.outcome,
        weight=series.weight,
        stratum=series.stratum,
        fitted=series.fitted,
        nuisance=series.nuisance,
    )
    periods = (2, 3, 4, 8)
    one = detect(series, periods, np.random.default_rng(1))
    other = detect(shifted, periods, np.random.default_rng(1))
    assert one.p_value == other.p_value


def test_order_of_rows_does_not_matter() -> None:
    answers = run(9)
    order = np.random.default_rng(0).permutation(len(answers))
    mixed = Answers(*(getattr(answers, name)[order] for name in Answers.__slots__))
    periods = (2, 4, 7)
    assert statistics(per_answer(mixed), periods) == pytest.approx(
        statistics(per_answer(answers), periods), rel=1e-9
    )


def test_sweep_statistic_is_the_f_test_of_a_regression() -> None:
    rng = np.random.default_rng(4)
    series, shared = per_prefill(answer(prefix(rng), by_item, rng), 8)
    assert shared == 8
    accuracy = series.outcome + series.fitted
    design = [series.nuisance, np.eye(4)[series.phase % 4][:, 1:]]
    n, k = series.nuisance.shape
    left = [
        np.square(accuracy - m @ np.linalg.lstsq(m, accuracy, rcond=None)[0]).sum()
        for m in (design[0], np.concatenate(design, axis=1))
    ]
    assert statistics(series, (4,))[0] == pytest.approx((n - k) * (left[0] - left[1]) / left[0])


def test_sweep_takes_trends_along_the_pads_out() -> None:
    rng = np.random.default_rng(4)
    answers = answer(prefix(rng, contexts=2), constant(0.5), rng)
    series, _ = per_prefill(answers, 8)
    for context in (0, 1):
        here = series.stratum == context
        for power in (0, 1, 2):
            assert abs(series.outcome[here] @ series.along[here].astype(float) ** power) < 1e-8


@given(st.floats(0.0, 4000.0), st.integers(1, 130))
def test_log_tail_is_smooth_and_right(x: float, df: int) -> None:
    ours = float(log_chi2_sf(np.array([x]), np.array([df]))[0])
    theirs = float(stats.chi2.logsf(x, df))
    if np.isfinite(theirs) and theirs > -600:
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
    further = float(log_chi2_sf(np.array([x + 1.0]), np.array([df]))[0])
    assert further < ours or x < df


@pytest.mark.parametrize("log_p", [0.0, -1e-3, -1.0, -3.0, -8.0, -599.0, -601.0])
def test_reaching_a_p_value_is_having_one_as_small(log_p: float) -> None:
    rng = np.random.default_rng(2)
    series = per_answer(run(2))
    prepared = scores(series, (2, 3, 8, 16))
    outcomes = rng.permuted(np.tile(series.outcome, (300, 1)), axis=1)
    # One draw that no chance explains.
    outcomes[0] = series.phase % 8 < 4
    projected = outcomes @ prepared.matrix
    expected = prepared.log_p(projected).min(axis=1) <= log_p
    np.testing.assert_array_equal(prepared.reach(projected, log_p), expected)
