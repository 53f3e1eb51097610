from __future__ import annotations

import numpy as np
import pytest

from kvphase.stats.curve import curve
from kvphase.stats.gap import crossfit, null_pp, raw_pp
from kvphase.stats.series import cells, per_answer
from kvphase.stats.simulate import Truth, answer, constant, insequence, periodic

PROFILE = [0.4, 0.2, 0.2, 0.0]


def fitted(seed: int, truth: Truth, fold: int) -> tuple[float, float, float]:
    """Cross-fitted gap and its interval of one simulated screen, over blocks."""
    rng = np.random.default_rng(seed)
    answers = answer(insequence(rng, records=240), truth, rng)
    cluster = cells(answers.context, answers.block)
    found = crossfit(answers.correct.astype(float), answers.position % fold, cluster, rng)
    assert found is not None
    return found.pp, *found.ci95


def test_interval_covers_a_clear_gap() -> None:
    runs = np.array([fitted(seed, periodic(0.6, PROFILE), 4) for seed in range(200)])
    covered = ((runs[:, 1] <= 40) & (runs[:, 2] >= 40)).mean()
    # 95% nominal; the standard error of the share is .015.
    assert 0.91 <= covered <= 0.99
    assert runs[:, 0].mean() == pytest.approx(40, abs=0.8)


def test_noise_has_no_crossfitted_gap_though_its_raw_gap_is_large() -> None:
    runs = np.array([fitted(seed, constant(0.7), 8) for seed in range(200)])
    assert runs[:, 0].mean() == pytest.approx(0, abs=1.2)
    assert ((runs[:, 1] <= 0) & (runs[:, 2] >= 0)).mean() >= 0.92


def test_null_gap_is_the_mean_raw_gap_of_noise() -> None:
    raw, null = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        answers = answer(insequence(rng, records=120), constant(0.7), rng)
        raw.append(raw_pp(curve(answers, 8)))
        null.append(null_pp(per_answer(answers), 8, rng))
    assert np.mean(null) == pytest.approx(np.mean(raw), rel=0.1)
    assert np.mean(null) > 10


def test_too_few_clusters_give_no_interval() -> None:
    rng = np.random.default_rng(0)
    answers = answer(insequence(rng, contexts=3, records=24), constant(0.7), rng)
    phase = answers.position % 4
    assert crossfit(answers.correct.astype(float), phase, answers.context, rng) is None


def test_raw_gap_of_nothing_is_zero() -> None:
    assert raw_pp(()) == 0.0
