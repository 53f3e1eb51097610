"""The level: worlds without phase must not be called phase-sensitive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from kvphase.stats import measure
from kvphase.stats.simulate import NULLS, answer, insequence, prefix

if TYPE_CHECKING:
    from kvphase.types import DesignKind

RUNS = 500
LEVEL = 0.01


@pytest.mark.slow
def test_false_alarms_stay_inside_the_binomial_bound() -> None:
    # At a true rate of 1% the number of alarms in 500 runs exceeds 13 with probability .0007.
    bound = 13
    assert stats.binom.sf(bound, RUNS, LEVEL) < 0.001
    worlds = sorted(NULLS)
    alarms = []
    for seed in range(RUNS):
        world = worlds[seed % len(worlds)]
        kind: DesignKind = "prefix" if (seed // len(worlds)) % 2 else "insequence"
        rng = np.random.default_rng([11, seed])
        layout = prefix(rng) if kind == "prefix" else insequence(rng, records=120)
        verdict = measure(answer(layout, NULLS[world], rng), kind=kind, seed=seed)
        if verdict.verdict == "phase-sensitive":
            alarms.append((world, kind, seed))
    assert len(alarms) <= bound, alarms
