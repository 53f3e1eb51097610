"""Confirm and the tail control: levels, power, and which position is blamed."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from kvphase.catalogue import Catalogue, Message
from kvphase.errors import UsageError
from kvphase.stats.looks import looks_at
from kvphase.stats.paired import confirm
from kvphase.stats.relabel import dealt, permutation_p, whitened
from kvphase.stats.twoway import TwoWay, merged_blocks
from kvphase.types import Answers, Arm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from kvphase.stats.confirmed import Confirmation

PERIOD = 4
WEAK = (0.0, 0.0, 0.0, -1.0)
"""One weak residue, to be multiplied by a gap."""


def paired(
    rng: np.random.Generator,
    *,
    contexts: int = 2,
    items: int = 20,
    period: int = PERIOD,
    target: float = 0.0,
    question: float = 0.0,
    distance: float = 0.0,
    mean: float = 0.75,
    prefill: Callable[[np.random.Generator], float] = lambda rng: rng.normal(0.0, 0.05),
    spread: float = 0.3,
    arm: Arm = Arm.SHIFT,
) -> Answers:
    """Contents at ``2 * period`` prefills; each factor's gap (a fraction) is one weak residue.

    Items differ in difficulty by up to ``spread`` either way, contents by 5 points (sd), prefills
    as ``prefill`` says. Arm ``tail`` leaves the targets where they are.
    """
    weak = np.append(np.zeros(period - 1), -1.0)
    parts = []
    for context in range(contexts):
        homes = [rng.permutation(period) for _ in range(-(-items // period))]
        start = int(rng.integers(128))
        at = start + np.arange(items) * 5 * period + np.concatenate(homes)[:items]
        ability = rng.uniform(-spread, spread, size=items) + rng.normal(0.0, 0.05)
        end = int(at.max()) + 50
        residues = np.concatenate([rng.permutation(period), rng.permutation(period)])
        for step, residue in enumerate(residues):
            pad = step if arm is Arm.SHIFT else 0
            ask = end + step + (int(residue) - end - step) % period
            position = at + pad
            chance = mean + ability + prefill(rng) + target * weak[position % period]
            chance += question * weak[ask % period] + distance * weak[(ask - position) % period]
            parts.append(_prefill(rng, chance, position, context, pad, ask, arm))
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.join(part)
    return joined


def _prefill(
    rng: np.random.Generator,
    chance: NDArray[np.float64],
    position: NDArray[np.int64],
    context: int,
    pad: int,
    question: int,
    arm: Arm,
) -> Answers:
    n = len(position)
    unknown = np.full(n, np.nan)
    return Answers(
        position=position,
        correct=(rng.random(n) < chance).astype(np.int8),
        logprob=unknown,
        item=np.arange(n),
        block=np.arange(n) // 24,
        context=np.full(n, context),
        pad=np.full(n, pad),
        arm=np.full(n, arm.value),
        text=np.full(n, "?"),
        margin=unknown,
        question=np.full(n, question),
        against=unknown,
    )


def cut_short(answers: Answers, rng: np.random.Generator) -> Answers:
    """Drop a fifth of the prefills and the ends of two more; leave 5% of answers unfinished."""
    prefill = answers.context * 1000 + answers.pad
    names = rng.permutation(np.unique(prefill))
    gone = np.isin(prefill, names[: len(names) // 5])
    ended = np.isin(prefill, names[-2:]) & (answers.item >= 7)
    kept = answers.where(~gone & ~ended)
    unfinished = rng.random(len(kept)) < 0.05
    return replace(kept, correct=np.where(unfinished, -1, kept.correct).astype(np.int8))


def p_values(found: Confirmation) -> dict[str, float | None]:
    return {factor.name: factor.p_value for factor in found.factors}


def false_alarms(runs: int, level: float) -> int:
    """Alarms that a test at this level exceeds in so many runs with probability below .001."""
    return int(stats.binom.isf(0.001, runs, level))


def failing(rng: np.random.Generator) -> float:
    """Now and then a whole prefill fails."""
    return -1.0 if rng.random() < 0.1 else 0.0


WORLDS: dict[str, Callable[[np.random.Generator], Answers]] = {
    "plain": paired,
    "one content": lambda rng: paired(rng, contexts=1),
    "few items": lambda rng: paired(rng, contexts=4, items=8),
    "nearly all right": lambda rng: paired(rng, mean=0.95, spread=0.04),
    "cut short": lambda rng: cut_short(paired(rng), rng),
    "failing prefills": lambda rng: paired(rng, prefill=failing),
}


@pytest.mark.parametrize("world", WORLDS)
def test_each_factor_keeps_its_level_where_nothing_matters(world: str) -> None:
    runs, level = 150, 0.05
    alarms: Counter[str] = Counter()
    for seed in range(runs):
        answers = WORLDS[world](np.random.default_rng([21, seed]))
        for name, p in p_values(confirm(answers, PERIOD, alpha=level, seed=seed)).items():
            alarms[name] += p is not None and p <= level
    # 17 of 150: more has probability below .001 at a true level of 5%.
    assert max(alarms.values()) <= false_alarms(runs, level), alarms


@pytest.mark.slow
def test_the_level_of_the_status_at_the_default_alpha() -> None:
    runs = 600
    names = sorted(WORLDS)
    alarms: Counter[str] = Counter()
    for seed in range(runs):
        answers = WORLDS[names[seed % len(names)]](np.random.default_rng([22, seed]))
        for name, p in p_values(confirm(answers, PERIOD, seed=seed)).items():
            alarms[name] += p is not None and p <= 0.005
    assert max(alarms.values()) <= false_alarms(runs, 0.005), alarms


@pytest.mark.parametrize(
    ("gap", "contexts", "items"), [(0.6, 2, 24), (0.4, 4, 24), (0.25, 4, 60), (0.15, 6, 60)]
)
def test_a_target_effect_is_blamed_on_the_target_alone(
    gap: float, contexts: int, items: int
) -> None:
    # At the promised 97%, more than 4 of 30 go astray with probability .0015.
    assert stats.binom.sf(4, 30, 0.03) < 0.002
    seen = [
        confirm(
            paired(np.random.default_rng([23, seed]), contexts=contexts, items=items, target=gap),
            PERIOD,
            seed=seed,
        )
        for seed in range(30)
    ]
    status = Counter(found.status for found in seen)
    assert status["follows-target"] >= 26, status
    assert status["mixed"] <= 2, status
    gaps = [found.factors[0].gap_pp or 0.0 for found in seen]
    assert np.mean(gaps) == pytest.approx(100 * gap, rel=0.2)
    lowest = [int(np.argmin(found.factors[0].effect_pp)) for found in seen]
    assert lowest.count(3) >= 29


@pytest.mark.parametrize("factor", ["question", "distance"])
def test_question_and_distance_are_told_from_the_target(factor: str) -> None:
    gaps = {"question": 0.35, "distance": 0.35}
    status: Counter[str] = Counter()
    for seed in range(20):
        rng = np.random.default_rng([24, seed])
        answers = paired(rng, contexts=4, items=40, **{factor: gaps[factor]})  # type: ignore[arg-type]
        status[confirm(answers, PERIOD, seed=seed).status] += 1
    assert status[f"follows-{factor}"] >= 18, status


def test_a_corrupted_question_residue_is_always_found() -> None:
    found = 0
    for seed in range(40):
        answers = paired(np.random.default_rng([25, seed]), question=2.0)
        result = confirm(answers, PERIOD, seed=seed)
        p = p_values(result)["question"]
        found += p is not None and p <= 0.005
        assert np.argmin(result.factors[1].effect_pp) == 3
    assert found >= 39


def test_two_effects_are_mixed() -> None:
    answers = paired(np.random.default_rng(1), contexts=6, items=60, target=0.3, distance=0.3)
    found = confirm(answers, PERIOD)
    assert found.status == "mixed"
    assert "the target's position (p = " in found.reason
    assert "and the distance between them (p = " in found.reason


def test_one_content_cannot_tell_a_failing_prefill_from_a_question_effect() -> None:
    """Two bad prefills of eight share a residue in one deal of seven: no p value is smaller."""
    answers = paired(np.random.default_rng(2), contexts=1, items=40, question=2.0)
    p = p_values(confirm(answers, PERIOD))["question"]
    assert p is not None
    assert p == pytest.approx(1 / 7, abs=0.09)


@pytest.mark.parametrize(
    "world",
    [
        {"contexts": 4, "items": 40, "spread": 0.1},
        {"contexts": 2, "items": 20, "spread": 0.1},
        {"contexts": 3, "items": 48, "spread": 0.04, "mean": 0.95},
    ],
    ids=["large", "small", "nearly all right"],
)
def test_the_detectable_gap_is_found_as_often_as_promised(world: dict[str, float]) -> None:
    hits = {"target": 0, "question": 0, "distance": 0}
    for seed in range(30):
        rng = np.random.default_rng([26, seed])
        flat = confirm(paired(rng, **world), PERIOD, seed=seed)  # type: ignore[arg-type]
        for factor in flat.factors:
            assert factor.mde_pp is not None
            gap = {factor.name: factor.mde_pp / 100}
            answers = paired(rng, **world, **gap)  # type: ignore[arg-type]
            p = p_values(confirm(answers, PERIOD, seed=seed))[factor.name]
            hits[factor.name] += p is not None and p <= 0.005
    # 95% of 30 is 28.5; fewer than 25 has probability .0033 for each factor.
    assert stats.binom.cdf(24, 30, 0.95) < 0.005
    assert min(hits.values()) >= 25, hits


def test_no_question_gap_is_promised_where_the_guard_could_not_be_passed() -> None:
    found = confirm(paired(np.random.default_rng(3), contexts=1, items=60), PERIOD)
    assert found.factors[1].p_value is not None
    assert found.factors[1].mde_pp is None
    assert confirm(paired(np.random.default_rng(3)), PERIOD).factors[1].mde_pp is not None


def test_a_run_cut_short_still_finds_a_large_effect() -> None:
    status: Counter[str] = Counter()
    for seed in range(20):
        rng = np.random.default_rng([27, seed])
        answers = cut_short(paired(rng, contexts=4, items=24, target=0.6), rng)
        status[confirm(answers, PERIOD, seed=seed).status] += 1
    assert status["follows-target"] >= 18, status


def test_what_was_expected_decides_between_not_confirmed_and_inconclusive() -> None:
    answers = paired(np.random.default_rng(5), contexts=4, items=60)
    mde = confirm(answers, PERIOD).factors[0].mde_pp
    assert mde is not None
    assert confirm(answers, PERIOD, expected_pp=mde + 1).status == "not-confirmed"
    assert confirm(answers, PERIOD, expected_pp=mde - 1).status == "inconclusive"
    status = "not-confirmed" if mde <= 10 else "inconclusive"
    assert confirm(answers, PERIOD).status == status


def test_the_same_seed_and_any_order_give_the_same_result() -> None:
    rng = np.random.default_rng(6)
    answers = paired(rng, target=0.2)
    first = confirm(answers, PERIOD, seed=3)
    assert confirm(answers, PERIOD, seed=3) == first
    assert first.n == 2 * 8 * 20
    assert first.contexts == 2
    assert [point.residue for point in first.curve] == [0, 1, 2, 3]
    assert sum(point.n for point in first.curve) == first.n


def _always(answers: Answers, value: int) -> Answers:
    return replace(answers, correct=np.full(len(answers), value, dtype=np.int8))


def test_every_run_however_poor_gets_an_answer_in_two_languages() -> None:
    rng = np.random.default_rng(8)
    answers = paired(rng)
    none = answers.where(np.zeros(len(answers), dtype=bool))
    poor = {
        "no finished answers": none,
        "no finished answers to": _always(answers, -1),
        "are right": _always(answers, 1),
        "are wrong": _always(answers, 0),
        "cannot tell": replace(answers, question=np.full(len(answers), -1)),
        "cannot tell the": answers.where(answers.item == 0),
        "cannot tell the target's": answers.where(answers.pad == 0),
    }
    for words, these in poor.items():
        found = confirm(these, PERIOD)
        assert found.status == "inconclusive", words
        assert words in found.reason
        assert found.factors[0].p_value is None
        assert found.tail is None
        assert isinstance(found.reason, Message)
        assert Catalogue("zh").of(found.reason) != found.reason
    for size in range(1, 60, 7):
        confirm(answers.where(np.arange(len(answers)) < size), PERIOD)


def test_a_question_that_never_moves_in_phase_leaves_target_and_distance_alike() -> None:
    answers = paired(np.random.default_rng(9), contexts=4, target=0.6)
    still = answers.question - answers.question % PERIOD
    found = confirm(replace(answers, question=still), PERIOD)
    assert found.status == "inconclusive"
    assert p_values(found) == {"target": None, "question": None, "distance": None}


def test_every_status_is_spoken_in_chinese() -> None:
    rng = np.random.default_rng(10)
    seen: dict[str, str] = {}
    runs = [paired(rng, contexts=4, items=60, target=0.5), paired(rng, question=2.0)]
    runs += [paired(rng, contexts=4, items=60, distance=0.5), paired(rng, contexts=1, items=8)]
    runs += [paired(rng, contexts=4, items=60, target=0.5, distance=0.4, question=0.5)]
    runs += [paired(rng, contexts=1, items=60, period=2, target=0.5)]
    for answers in runs:
        period = 2 if answers is runs[-1] else PERIOD
        found = confirm(answers, period, expected_pp=30.0)
        seen[found.status] = Catalogue("zh").of(found.reason)
    assert {"follows-target", "follows-question", "follows-distance", "mixed"} <= set(seen)
    assert all("余数" in text and "。" in text for text in seen.values()), seen


def test_a_period_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match="period of 1"):
        confirm(paired(np.random.default_rng(0)), 1)


def test_two_way_residuals_are_those_of_least_squares_with_cells_missing() -> None:
    rng = np.random.default_rng(11)
    asked = rng.random((7, 5)) < 0.7
    values = np.where(asked, rng.normal(size=(7, 5)), 0.0)
    rows, columns = np.nonzero(asked)
    design = np.concatenate([np.eye(7)[rows], np.eye(5)[columns]], axis=1)
    fit = design @ np.linalg.lstsq(design, values[asked], rcond=None)[0]
    left = TwoWay(asked).residuals(values[:, :, None])[:, :, 0]
    np.testing.assert_allclose(left[asked], values[asked] - fit, atol=1e-10)
    assert not left[~asked].any()


def test_labels_are_dealt_evenly_inside_strata_only() -> None:
    stratum, label = np.array([1, 0, 0, 1, 0, 2]), np.array([3, 0, 1, 2, 2, 1])
    deal = dealt(stratum, label, np.random.default_rng(12).normal(size=(6, 4, 3)))
    every = [
        np.array([first, *three, last])
        for three in itertools.permutations(label[[1, 2, 4]])
        for first, last in ((3, 2), (2, 3))
    ]
    sums = [deal.parts[[0, 1, 2, 4, 3], row].sum(axis=0) + deal.parts[5, 1] for row in every]
    np.testing.assert_allclose(np.mean(sums, axis=0), 0.0, atol=1e-12)
    exact = np.einsum("di,dj->ij", sums, sums) / len(sums)
    np.testing.assert_allclose(deal.covariance, exact, atol=1e-12)
    test = whitened(deal, np.eye(3))
    seen = np.square(test.table[np.arange(6), label].sum(axis=0)).sum()
    statistics = [np.square(total @ np.linalg.cholesky(test.inverse)).sum() for total in sums]
    expected = np.mean(np.array(statistics) >= seen - 1e-9)
    p = [permutation_p(deal, test, np.random.default_rng(seed)) or 0.0 for seed in range(200)]
    assert np.mean(p) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [([24, 24], [0, 1]), ([4, 4, 4, 4], [0, 0, 1, 1]), ([8, 3], [0, 0]), ([2], [0])],
)
def test_small_blocks_are_merged(sizes: Sequence[int], groups: Sequence[int]) -> None:
    merged = merged_blocks(np.repeat(np.arange(len(sizes)) + 5, sizes), 8)
    np.testing.assert_array_equal(merged, np.repeat(groups, sizes))


def tail_of(rng: np.random.Generator, **world: float) -> Answers:
    return paired(rng, arm=Arm.TAIL, prefill=lambda _: 0.0, **world)  # type: ignore[arg-type]


def test_a_flat_tail_is_called_flat() -> None:
    status: Counter[str] = Counter()
    for seed in range(40):
        rng = np.random.default_rng([31, seed])
        found = confirm(tail_of(rng, contexts=2, items=120), PERIOD).tail
        assert found is not None
        status[found.status] += 1
        assert found.largest_pp <= found.upper_pp
        assert found.n == 2 * 8 * 120
    assert status["flat"] >= 36, status


def test_a_tail_that_is_not_flat_is_hardly_ever_called_flat() -> None:
    """The weak residue lies 3/4 of the gap below the mean: exactly the margin, 10 points."""
    runs, flat, above = 200, 0, 0
    for seed in range(runs):
        rng = np.random.default_rng([32, seed])
        answers = tail_of(rng, items=40, question=0.4 / 3, mean=0.7, spread=0.1)
        found = confirm(answers, PERIOD).tail
        assert found is not None
        flat += found.status == "flat"
        above += found.upper_pp >= 10.0
    assert flat <= false_alarms(runs, 0.05)
    assert above == runs - flat


@pytest.mark.parametrize("contexts", [2, 6])
def test_a_corrupted_tail_is_not_flat(contexts: int) -> None:
    found = confirm(tail_of(np.random.default_rng(33), contexts=contexts, question=0.5), PERIOD)
    assert found.tail is not None
    assert found.tail.status == "not-flat"
    assert min(found.tail.curve, key=lambda point: point.accuracy).residue == 3
    assert found.status == "inconclusive"


def test_a_tail_too_small_or_without_some_residue_is_inconclusive() -> None:
    rng = np.random.default_rng(34)
    answers = tail_of(rng, contexts=1, items=4)
    small = confirm(answers, PERIOD).tail
    assert small is not None
    assert small.status == "inconclusive"
    right = _always(tail_of(rng, contexts=2, items=60), 1)
    for these, status in (
        (right, "flat"),
        (right.where(right.question % PERIOD != 1), "inconclusive"),
        (_always(answers, 1), "inconclusive"),
        (right.where(right.item == 0), "inconclusive"),
        (right.where((right.question + right.item) % PERIOD == 0), "inconclusive"),
    ):
        tail = confirm(these, PERIOD).tail
        assert tail is not None
        assert tail.status == status


def test_looks_are_taken_at_whole_contents() -> None:
    answers = paired(np.random.default_rng(35), contexts=5, items=8)
    for look in looks_at(5):
        assert confirm(answers.where(answers.context < look), PERIOD).contexts == look
