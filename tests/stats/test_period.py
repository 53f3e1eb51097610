from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from kvphase.stats.period import REPLICATION, added_p, detect, name_period, replication_p
from kvphase.stats.series import per_answer, per_prefill, screen_candidates, sweep_candidates
from kvphase.stats.simulate import Layout, Truth, answer, insequence, periodic, prefix

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROFILES = {
    2: [0.0, 0.4],
    3: [0.0, 0.3, 0.4],
    4: [0.4, 0.3, 0.35, 0.0],
    6: [0.0, 0.4, 0.1, 0.3, 0.25, 0.2],
    8: [0.4, 0.3, 0.35, 0.2, 0.4, 0.1, 0.3, 0.0],
    12: [0.4, 0.3, 0.35, 0.2, 0.4, 0.1, 0.3, 0.0, 0.2, 0.1, 0.4, 0.05],
}


def screen(truth: Truth, seed: int, *, records: int) -> tuple[int, float]:
    """Period and replication p value of one simulated screen."""
    rng = np.random.default_rng(seed)
    series = per_answer(answer(insequence(rng, records=records), truth, rng))
    found = detect(series, screen_candidates(series), rng)
    assert found.p_value is not None
    assert found.p_value <= 0.005
    period = name_period(series, found, rng)
    return period, replication_p(series, period, rng)


@pytest.mark.slow
@pytest.mark.parametrize("period", sorted(PROFILES))
def test_the_right_period_is_named_and_repeats(period: int) -> None:
    named, again = screen(periodic(0.6, PROFILES[period]), period, records=40 * (period + 6))
    assert named == period
    assert again <= REPLICATION


@pytest.mark.parametrize("period", [2, 4, 8])
def test_sweeps_name_divisors_of_the_modulus(period: int) -> None:
    rng = np.random.default_rng(period)
    layout = prefix(rng, questions=32)
    series, shared = per_prefill(answer(layout, periodic(0.6, PROFILES[period]), rng), 8)
    candidates = sweep_candidates(series, shared)
    assert candidates == (2, 4, 8)
    found = detect(series, candidates, rng)
    assert found.p_value is not None
    assert found.p_value <= 0.005
    assert name_period(series, found, rng) == period
    assert replication_p(series, period, rng) <= REPLICATION


def test_a_multiple_adds_nothing_to_its_divisor_by_level() -> None:
    p = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        layout = insequence(rng, records=120)
        series = per_answer(answer(layout, periodic(0.6, PROFILES[4]), rng))
        p.append(added_p(series, 8, 4, rng, enough=10))
    # Uniform: mean 1/2 with standard error .046.
    assert np.mean(p) == pytest.approx(0.5, abs=0.15)
    assert np.mean(np.array(p) <= 0.1) <= 0.25


def test_a_true_multiple_adds_to_its_divisor() -> None:
    rng = np.random.default_rng(0)
    series = per_answer(answer(insequence(rng), periodic(0.6, PROFILES[8]), rng))
    assert added_p(series, 8, 4, rng, enough=10) <= 0.001


def only_the_first_time(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
    """Residue 5 is bad, but not again eight pads later."""
    return np.where((layout.position % 8 == 5) & (layout.pad < 8), 0.2, 0.8)


def test_what_happens_only_once_does_not_replicate() -> None:
    fails = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        series, _ = per_prefill(answer(prefix(rng, contexts=4), only_the_first_time, rng), 8)
        fails += replication_p(series, 8, rng) > REPLICATION
    # An effect in one half passes at most about one time in ten.
    assert fails >= 16


def test_an_effect_at_the_limit_replicates_mostly() -> None:
    fails = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        layout = insequence(rng, records=240)
        series = per_answer(answer(layout, periodic(0.7, [0.17, 0.17, 0.17, 0.0]), rng))
        fails += replication_p(series, 4, rng) > REPLICATION
    assert fails <= 5
