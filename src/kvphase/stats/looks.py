"""Looking at the answers before all of them are there, without raising the level.

The level alpha is shared out over the looks in advance; look k may spend w_k alpha, the weights
adding up to 1. Stopping at the first look with p_k <= w_k alpha, or reporting min_k p_k / w_k as
the p value of the run, keeps the level whatever the looks have in common, by Boole's inequality.

Source: the weighted Bonferroni procedure (C. E. Bonferroni, 1936; R. Rosenthal and D. B. Rubin,
Ensemble-adjusted p values, Psychological Bulletin 94, 1983), used as an alpha-spending function
(K. K. G. Lan and D. L. DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70,
1983). Boundaries that use the correlation of the looks would spend less for the same power, but
need p values that are normal; these are permutation p values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WEIGHTS = (0.1, 0.2, 0.3, 0.4)
"""Share of the level at 25, 50, 75 and 100% of the contexts: most is kept for the last look."""


def looks_at(contexts: int) -> tuple[int, ...]:
    """Cumulative numbers of contexts after which to look: 25, 50, 75 and 100%, rounded up.

    One to three contexts are looked at once, at the end: a look earlier would come too early to
    find anything and would still cost a share of the level. No contexts, no looks.
    """
    if contexts < len(WEIGHTS):
        return (contexts,) if contexts > 0 else ()
    return tuple(math.ceil(contexts * (k + 1) / len(WEIGHTS)) for k in range(len(WEIGHTS)))


def weights_of(looks: Sequence[int]) -> tuple[float, ...]:
    """Share of the level of each look planned by ``looks_at``; the shares add up to 1.

    Raises:
        ValueError: a number of looks that ``looks_at`` never plans.
    """
    shares: dict[int, tuple[float, ...]] = {0: (), 1: (1.0,), len(WEIGHTS): WEIGHTS}
    if len(looks) not in shares:
        raise ValueError(f"no weights for {len(looks)} looks")
    return shares[len(looks)]


def combined(p_values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """One p value for all looks taken so far: min(1, min_k p_k / w_k).

    Args:
        p_values: One for each look taken, in order; None where a look could not test anything.
        weights: Share of the level of every look planned, in order; at least as many.

    Returns:
        A p value that keeps its level, or None if no look could test. A look that could not test
        spends its share for nothing: giving it to others afterwards would depend on the answers.

    Raises:
        ValueError: more looks than weights.
    """
    if len(p_values) > len(weights):
        raise ValueError(f"{len(p_values)} looks, but weights for {len(weights)}")
    spent = [p / w for p, w in zip(p_values, weights, strict=False) if p is not None]
    return min(1.0, *spent) if spent else None
