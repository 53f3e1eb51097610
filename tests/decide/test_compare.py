"""Comparing runs: what pairs, what is refused, the level over simulated pairs, the ranking."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from decide.worlds import WEAK, by_question, contents, length, measured, run
from kvphase.decide.compare import ALPHA, compare, matched
from kvphase.decide.pairs import gap_difference, mean_difference, pattern_paired
from kvphase.decide.phases import Tally, chance_of_wrong_order, crossfit_extremes, holm, tally
from kvphase.errors import UsageError
from kvphase.stats.simulate import (
    NULLS,
    Truth,
    answer,
    constant,
    insequence,
    periodic,
    prefix,
)
from kvphase.types import Answers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.stats.simulate import Layout

RUNS = 500
STRONG = [0.29, 0.29, -0.4, 0.29] * 2
"""A phase so weak, and others so strong, that answers vary five times as much at one residue."""
SAME: dict[str, Truth] = {
    **{name: NULLS[name] for name in ("constant", "depth", "context", "runs", "ceiling")},
    "question": by_question(0),
    "phase": periodic(0.75, WEAK),
    "strong phase": periodic(0.7, STRONG),
}


@pytest.mark.slow
def test_equal_models_are_said_to_differ_no_more_often_than_stated() -> None:
    # At a true rate of 1% more than 13 alarms in 500 pairs come with probability .0007.
    bound = 13
    assert stats.binom.sf(bound, RUNS, ALPHA) < 0.001
    worlds = sorted(SAME)
    alarms = []
    for seed in range(RUNS):
        world = worlds[seed % len(worlds)]
        # Every fourth pair was asked different questions.
        other = 100_000 + seed if (seed // len(worlds)) % 4 == 3 else seed
        same = [
            by_question(asked) if world == "question" else SAME[world] for asked in (seed, other)
        ]
        one = measured(same[0], 2 * seed, questions=seed)
        two = measured(same[1], 2 * seed + 1, questions=other, name="b.kvphase")
        pair = compare([one, two], seed=seed).tables[0].pairs[0]
        assert pair.paired == (other == seed)
        if pair.finding != "none":
            alarms.append((world, seed, pair.finding))
    assert len(alarms) <= bound, alarms


def test_a_difference_in_phase_is_found_and_a_difference_in_level_is_not_one() -> None:
    weak, flat, low = (
        measured(truth, seed, name=name, contexts=32)
        for seed, (name, truth) in enumerate(
            {"weak": periodic(0.7, WEAK), "flat": constant(0.85), "low": constant(0.6)}.items()
        )
    )
    table = compare([weak, flat, low]).tables[0]
    assert table.pair(0, 1).finding == "both"
    assert table.pair(1, 2).finding == "level"
    assert table.pair(0, 1).pattern.period == 4
    gap = table.pair(0, 1).gap
    assert gap is not None
    assert gap.low > 0
    assert [standing.run for standing in table.standings] == [1, 2, 0]
    worst = [standing.worst for standing in table.standings]
    assert worst == sorted(worst, reverse=True)
    assert (table.pair(0, 1).chance or 0.0) < 0.01


def test_what_is_equally_phase_sensitive_has_no_different_pattern() -> None:
    # A permutation of the differences over residues alarms here several times as often as it
    # should, since they vary five times as much at the weak residue.
    p_values = []
    for seed in range(120):
        layout = insequence(np.random.default_rng([1, seed]), contexts=6, records=48)
        rng = np.random.default_rng([2, seed])
        truth = periodic(0.7, STRONG)
        one, two = answer(layout, truth, rng), answer(layout, truth, rng)
        p_values.append(pattern_paired(one, two, "insequence", 8, rng).p_value or 0.0)
    small = sum(p <= 0.05 for p in p_values)
    assert small <= 14  # more than 14 of 120 at 5% come with probability .0012
    assert stats.binom.sf(14, 120, 0.05) < 0.002


def test_prefix_padding_is_compared_by_prefill() -> None:
    layout = prefix(np.random.default_rng(1), contexts=6)
    rng = np.random.default_rng(2)
    one, two = (answer(layout, truth, rng) for truth in (constant(0.8), periodic(0.7, WEAK)))
    names = contents_of(layout)
    lengths = [length(a, names, kind="prefix") for a in (one, two)]
    pair = compare([run(lengths[0]), run(lengths[1], name="b")]).tables[0].pairs[0]
    assert pair.paired
    assert pair.finding in ("pattern", "both")
    assert pair.pattern.period in (4, 8)
    apart = replace(lengths[1], content=np.char.add("other", names))
    pair = compare([run(lengths[0]), run(apart, name="b", seed=1)]).tables[0].pairs[0]
    assert not pair.paired
    assert pair.pattern.p_value is not None
    assert pair.pattern.p_value < 0.01


def contents_of(layout: Layout) -> NDArray[np.str_]:
    """Of a sweep: the same item at another pad is another prompt."""
    return np.char.add(contents(layout, 0), np.char.add(":", layout.pad.astype(np.str_)))


def test_runs_that_stopped_early_pair_on_what_both_answered() -> None:
    whole = measured(constant(0.8), 1)
    two = measured(constant(0.8), 2, name="b.kvphase")
    cut = np.arange(len(two.lengths[0].answers)) < 5 * 64
    content = two.lengths[0].content
    assert content is not None
    answers = two.lengths[0].answers.where(cut)
    # Answers may come in another order: pairing is by what was asked.
    back = np.arange(len(answers))[::-1]
    turned = Answers(*(getattr(answers, column.name)[back] for column in fields(answers)))
    short = length(turned, content[cut][back], partial=True)
    found = compare([whole, run(short, name="b.kvphase", partial=True)])
    pair = found.tables[0].pairs[0]
    assert (pair.paired, pair.n, pair.left) == (True, 5 * 64, 11 * 64)
    assert next(s for s in found.tables[0].standings if s.run == 1).partial


def test_answers_that_ended_a_run_early_do_not_enter_level_and_gap() -> None:
    one, two = measured(constant(0.8), 1), measured(constant(0.8), 2, name="b")
    late = np.arange(len(two.lengths[0].answers)) >= 12 * 64
    early = replace(two.lengths[0], fresh=late, level=two.lengths[0].answers.where(late), period=4)
    pair = compare([one, run(early, name="b")]).tables[0].pairs[0]
    assert pair.paired
    assert pair.apart
    most = np.arange(len(late)) >= 4 * 64
    early = replace(two.lengths[0], fresh=most, level=two.lengths[0].answers.where(most))
    pair = compare([one, run(early, name="b")]).tables[0].pairs[0]
    assert not pair.apart


def test_too_few_common_questions_are_not_paired() -> None:
    one, two = measured(constant(0.8), 1), measured(constant(0.8), 2)
    content = two.lengths[0].content
    assert content is not None
    mixed = np.where(np.arange(len(content)) < 400, content, np.char.add("x", content))
    assert matched(one.lengths[0], replace(two.lengths[0], content=mixed)) is None
    assert matched(one.lengths[0], two.lengths[0]) is not None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kind": "prefix"}, "the design differs: insequence in a.kvphase, prefix in b.kvphase"),
        ({"modulus": 24}, "the modulus of the curve differs: 8 in a.kvphase, 24 in b.kvphase"),
        ({"measure": "logprob"}, "the measure differs: accuracy"),
        ({"design": {"records": 88}}, "the number of records (difficulty) differs: 64"),
        ({"design": {"window": 16}}, "the local window that is left out differs: 128"),
        ({"rung": "needle-8192"}, "needle-2048 in a.kvphase, needle-8192 in b.kvphase"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(changed: dict[str, Any], words: str) -> None:
    one = measured(constant(0.8), 1)
    two = measured(constant(0.8), 2, name="b.kvphase", **changed)
    with pytest.raises(UsageError) as refused:
        compare([one, two])
    assert words in str(refused.value)


def test_chat_thinking_and_missing_needles_are_refused() -> None:
    one = measured(constant(0.8), 1)
    for two, words in (
        (replace(one, name="b", chat=True), "b was asked inside a chat template and a.kvphase"),
        (replace(one, name="b", lengths=()), "b holds no needles"),
    ):
        with pytest.raises(UsageError, match=words):
            compare([one, two])
    talks = replace(one, chat=True)
    with pytest.raises(UsageError, match=r"thinking differs: off in a\.kvphase, on in b"):
        compare([talks, replace(talks, name="b", thinking="on")])
    with pytest.raises(UsageError, match="at least two"):
        compare([one])


def test_lengths_that_not_all_have_are_left_out_and_named() -> None:
    one, two = measured(constant(0.8), 1), measured(constant(0.8), 2, name="b.kvphase")
    longer = replace(one.lengths[0], rung="needle-8192", tokens=8192)
    found = compare([replace(one, lengths=(*one.lengths, longer)), two])
    assert [table.rung for table in found.tables] == ["needle-2048"]
    assert found.left_out == ("needle-8192 is left out: it is not in b.kvphase.",)


def test_identical_answers_are_equal_in_everything() -> None:
    one = measured(periodic(0.75, WEAK), 1)
    pair = compare([one, replace(one, name="b")]).tables[0].pairs[0]
    assert pair.finding == "none"
    assert (pair.pattern.p_value, pair.pattern_holm) == (1.0, 1.0)
    assert pair.mean is not None
    assert (pair.mean.pp, pair.mean.low, pair.mean.high) == (0.0, 0.0, 0.0)
    assert pair.gap is not None
    assert pair.gap.pp == 0.0
    assert pair.chance == 0.5


def test_all_p_values_are_adjusted_together() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
    runs = [measured(constant(0.8), seed, name=f"{seed}") for seed in range(3)]
    pairs = compare(runs).tables[0].pairs
    assert len(pairs) == 3
    raw = [p.pattern.p_value or 0.0 for p in pairs]
    raw += [p.mean.p_value for p in pairs if p.mean is not None]
    told = [p.pattern_holm for p in pairs] + [p.mean_holm for p in pairs]
    assert told == pytest.approx(holm(raw))


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_mean_and_gap_cover(paired: bool) -> None:
    # At 90% confidence; fewer than 337 hits of 400 come with probability .0004.
    truths = ([0.85, 0.85, 0.6, 0.85] * 2, [0.8, 0.8, 0.7, 0.8] * 2)
    rng = np.random.default_rng(23)
    hits = np.zeros(2, np.int64)
    for _ in range(400):
        ease = rng.choice((-0.1, 0.1), size=(16, 1))
        runs = []
        for truth in truths:
            shift = ease if paired else rng.choice((-0.1, 0.1), size=(16, 1))
            n = np.full((16, 8), 24)
            right = rng.binomial(n, np.array(truth) + shift)
            runs.append(Tally(n.astype(float), right.astype(float)))
        mean = mean_difference(runs[0], runs[1], 0.1, paired=paired)
        gap = gap_difference(runs[0], runs[1], 0.1, rng, paired=paired)
        assert mean is not None
        assert gap is not None
        hits += (mean.low <= 1.25 <= mean.high, gap.low <= 15.0 <= gap.high)
    assert stats.binom.cdf(336, 400, 0.9) < 0.001
    assert hits.min() >= 337, hits


def test_a_noisy_worst_phase_is_not_flattered_nor_blamed() -> None:
    # Equal phases: the lowest of eight is 6 points too low here, the cross-fitted one is right.
    rng = np.random.default_rng(5)
    raw, fitted = [], []
    for _ in range(60):
        n = np.full((16, 8), 5)
        right = rng.binomial(n, 0.8)
        counts = Tally(n.astype(float), right.astype(float))
        found = crossfit_extremes(counts, rng)
        assert found is not None
        raw.append(float(counts.accuracy.min()))
        fitted.append(found.worst)
    assert np.mean(raw) < 0.75
    assert abs(np.mean(fitted) - 0.8) < 0.015


def few_that_fail(at: dict[int, int], tasks: int = 6) -> Tally:
    """Tasks asked once at eight phases, all right but for one answer of each of ``at``."""
    right = np.ones((tasks, 8))
    for task, phase in at.items():
        right[task, phase] = 0.0
    return Tally(np.ones((tasks, 8)), right)


@pytest.mark.parametrize("at", [{}, {5: 3}, {0: 0}, {2: 7, 3: 1}, {0: 2, 1: 2, 4: 5}])
def test_a_worst_phase_is_never_above_the_mean(at: dict[int, int]) -> None:
    # Whoever fails names its phase for its own half; the other half is right there.
    counts = few_that_fail(at)
    found = crossfit_extremes(counts, np.random.default_rng(1))
    assert found is not None
    assert found.worst <= counts.right.mean()


def test_phases_that_cannot_be_told_apart_do_not_favour_the_first() -> None:
    # One task fails at one phase: which phase that is must make no difference.
    found = [
        crossfit_extremes(few_that_fail({5: phase}), np.random.default_rng(1)) for phase in range(8)
    ]
    worst = [one.worst for one in found if one is not None]
    assert worst == pytest.approx([47 / 48] * 8)
    assert [one.gap_pp for one in found if one is not None] == pytest.approx([0.0] * 8)


@pytest.mark.parametrize("at", [{}, {5: 3}])
def test_a_gap_without_variance_has_no_interval(at: dict[int, int]) -> None:
    rng = np.random.default_rng(1)
    assert gap_difference(few_that_fail(at), few_that_fail({}), 0.01, rng, paired=True) is None


@pytest.mark.parametrize("seed", range(4))
def test_one_task_of_six_does_not_settle_an_order(seed: int) -> None:
    # The task that fails is in no draw of its half of three in (2/3)^3 = 30%: these draws are ties.
    better, worse = few_that_fail({}), few_that_fail({5: 3})
    rng = np.random.default_rng(seed)
    chance = chance_of_wrong_order(better, worse, 1 / 48, rng, shared=True)
    assert chance == pytest.approx(0.5 * (2 / 3) ** 3, abs=0.02)


def test_the_chance_of_a_wrong_order_tells_apart() -> None:
    rng = np.random.default_rng(6)
    n = np.full((40, 4), 12)
    runs = [
        Tally(n.astype(float), rng.binomial(n, np.array(truth)).astype(float))
        for truth in ([0.9, 0.9, 0.9, 0.8], [0.9, 0.9, 0.9, 0.6], [0.9, 0.9, 0.9, 0.79])
    ]
    worst = [(crossfit_extremes(one, rng) or pytest.fail("too few")).worst for one in runs]
    sure = chance_of_wrong_order(runs[0], runs[1], worst[0] - worst[1], rng, shared=False)
    unsure = chance_of_wrong_order(runs[0], runs[2], abs(worst[0] - worst[2]), rng, shared=False)
    assert sure is not None
    assert unsure is not None
    assert sure < 0.001
    assert 0.02 < unsure <= 0.5
    few = Tally(n[:3].astype(float), n[:3].astype(float))
    assert chance_of_wrong_order(few, runs[0], 0.0, rng, shared=False) is None
    assert crossfit_extremes(few, rng) is None


def test_clusters_are_counted_by_phase() -> None:
    one = measured(constant(0.8), 1).lengths[0].answers
    counts = tally(one, one.context, 8)
    assert counts.n.shape == (16, 8)
    assert counts.n.sum() == len(one)
    assert counts.right.sum() == one.correct.sum()
    assert np.allclose(counts.influence().sum(axis=0), 0.0)
