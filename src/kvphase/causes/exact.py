"""Exact tests of paired answers, and how many pairs they need."""

from __future__ import annotations

import math
from functools import cache

from kvphase.causes.base import LEVEL


def sign_p(more: int, fewer: int) -> float:
    """One-sided exact p value of ``more`` against ``fewer``: P(Bin(more + fewer, 1/2) >= more).

    McNemar's test in its exact form. Source: Q. McNemar, Note on the sampling error of the
    difference between correlated proportions or percentages, Psychometrika 12 (1947).
    """
    return binomial_p(more, more + fewer, 0.5)


@cache
def binomial_p(k: int, n: int, rate: float) -> float:
    """P(Bin(n, rate) >= k)."""
    if k <= 0:
        return 1.0
    from scipy import special

    return float(special.bdtrc(k - 1, n, rate)) if k <= n else 0.0


@cache
def power_of_sign(n: int, effect: float, noise: float = 0.0, level: float = LEVEL) -> float:
    """Chance that ``n`` pairs are significant at ``level``.

    Args:
        n: Pairs.
        effect: Share of pairs that differ in the direction of the effect, less ``noise``.
        noise: Share of pairs that differ in the other direction.
        level: Of the one-sided sign test.
    """
    more, total = min(1.0, effect + noise), 0.0
    for fewer in range(n + 1):
        chance = _binomial(n, fewer, noise)
        if chance < 1e-9:
            continue
        need = _needed(fewer, n, level)
        rest = n - fewer
        total += chance * binomial_p(need, rest, min(1.0, more / max(1e-12, 1.0 - noise)))
    return total


@cache
def detectable(n: int, noise: float, power: float, level: float = LEVEL) -> float | None:
    """Smallest effect that ``n`` pairs find with ``power``, to one point; None if none is."""
    for points in range(1, 101 - math.ceil(100 * noise)):
        if power_of_sign(n, points / 100, noise, level) >= power:
            return points / 100
    return None


def _binomial(n: int, k: int, rate: float) -> float:
    if rate <= 0.0:
        return float(k == 0)
    logs = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    logs += k * math.log(rate) + (n - k) * math.log1p(-rate)
    return math.exp(logs)


@cache
def _needed(fewer: int, most: int, level: float) -> int:
    """Pairs in the effect's direction that are significant against ``fewer`` others."""
    return next((k for k in range(1, most + 1) if sign_p(k, fewer) <= level), most + 1)


__all__ = ["binomial_p", "detectable", "power_of_sign", "sign_p"]
