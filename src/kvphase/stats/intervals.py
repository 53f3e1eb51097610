"""Confidence limits for proportions and for the difference of two."""

from __future__ import annotations

import math

Z_TWO_SIDED_95 = 1.959963984540054
Z_ONE_SIDED_95 = 1.6448536269514722


def wilson(correct: float, n: float, *, z: float = Z_TWO_SIDED_95) -> tuple[float, float]:
    """Wilson's score interval for a proportion, two-sided 95% unless ``z`` says otherwise.

    Args:
        correct: Successes, 0 <= correct <= n.
        n: Trials; 0 gives (0, 1), which is all that no trials can say.
        z: Normal quantile.

    Returns:
        Lower and upper limit as fractions.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference,
    JASA 22 (1927).
    """
    if n <= 0:
        return (0.0, 1.0)
    share = correct / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if correct == 0 else max(0.0, centre - half)
    high = 1.0 if correct == n else min(1.0, centre + half)
    return (low, high)


def difference_lower95(first: int, n_first: int, second: int, n_second: int) -> float:
    """One-sided lower 95% limit of ``first/n_first - second/n_second``.

    Newcombe's hybrid of two Wilson intervals (method 10), which keeps its level down to a handful
    of events, zero included. The samples count as independent; where the same questions are in
    both, their positive correlation makes the limit conservative.

    Source: R. G. Newcombe, Interval estimation for the difference between independent
    proportions, Statistics in Medicine 17 (1998).
    """
    share_first = first / n_first if n_first else 0.0
    share_second = second / n_second if n_second else 0.0
    low, _ = wilson(first, n_first, z=Z_ONE_SIDED_95)
    _, high = wilson(second, n_second, z=Z_ONE_SIDED_95)
    return share_first - share_second - math.hypot(share_first - low, high - share_second)
