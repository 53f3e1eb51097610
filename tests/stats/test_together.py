"""Whole requests permuted: the level where facts of a request stand or fall together, and power."""

from __future__ import annotations

import numpy as np

from kvphase.stats.together import Shifted, p_together

SHIFTS, PERIODS = 16, (2, 4, 8)


def prompts(rng: np.random.Generator, dip: float) -> list[Shifted]:
    """Two prompts of six facts; a request's luck is shared by all of its facts."""
    made = []
    for _ in range(2):
        start = rng.integers(0, 500, 6)
        luck = rng.choice([-0.4, 0.2], (SHIFTS, 1))
        weak = (start + np.arange(SHIFTS)[:, None]) % 4 == 2
        rate = 0.7 + luck - dip * weak
        made.append(Shifted((rng.random((SHIFTS, 6)) < rate).astype(float), start))
    return made


def test_shared_luck_is_no_evidence() -> None:
    rng = np.random.default_rng(5)
    found = [p_together(prompts(rng, 0.0), PERIODS, rng) for _ in range(150)]
    # 5% of 150, and three standard deviations.
    assert sum(p <= 0.05 for p in found) <= 7.5 + 3 * 2.7


def test_a_dip_is_found() -> None:
    rng = np.random.default_rng(6)
    found = [p_together(prompts(rng, 0.6), PERIODS, rng) for _ in range(10)]
    assert sum(p <= 0.005 for p in found) >= 9


def test_nothing_varies() -> None:
    rng = np.random.default_rng(7)
    one = Shifted(np.ones((SHIFTS, 3)), np.zeros(3, dtype=np.int64))
    assert p_together([one], PERIODS, rng) == 1.0
    assert p_together([], PERIODS, rng) == 1.0
