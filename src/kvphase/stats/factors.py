"""Which position explains the answers to shifted contents: target, question or distance?

The model is ``right = item + prefill + f(target) + g(distance) + error`` within each content, f and
g functions of residues, and ``prefill = content + h(question) + error`` between its prefills. Given
the question's residue, target and distance differ only by sign; f and g are told apart because the
question's residue differs between prefills while the items' targets have all residues in each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats.confirmed import Factor
from kvphase.stats.detectable import gap_seen, passes_guard
from kvphase.stats.permute import MOST_DRAWS
from kvphase.stats.relabel import dealt, label_counts, log_deals, permutation_p, whitened
from kvphase.stats.score import centred, indicators
from kvphase.stats.twoway import Content, TwoWay, merged_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.stats.confirmed import FactorName

RANK = 1e-8
"""Eigenvalue of a design, relative to the largest, below which a direction is not estimated."""
GUARD = 0.05
"""Permutation p value of the question above which its F test is not believed."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Least squares of f and g, items and prefills taken out."""

    gram: NDArray[np.float64]
    """Crossproducts of the indicators of target and distance, shape (2p, 2p)."""
    effect: NDArray[np.float64]
    """f, then g, fractions, shape (2p,)."""
    variance: float
    """Of one answer around the model."""
    mean: float
    """Accuracy of all answers."""


def factors(
    of: Sequence[Content], period: int, alpha: float, rng: np.random.Generator
) -> tuple[Factor, Factor, Factor]:
    """Test target, question and distance, each given the other two.

    Args:
        of: Contents with their answers.
        period: Residues of every position.
        alpha: Level that the smallest detectable gaps refer to, and below which a permutation p
            value must be able to get if a factor is to be tested at all.
        rng: Source of the permutations.

    Returns:
        Target, question, distance.
    """
    fit = fitted(of, period)
    target = _inside(of, fit, period, alpha, rng, name="target")
    distance = _inside(of, fit, period, alpha, rng, name="distance")
    return target, _between(of, fit, period, alpha, rng), distance


def fitted(of: Sequence[Content], period: int) -> Fit:
    """Fit f and g to all contents at once."""
    gram, moment = np.zeros((2 * period, 2 * period)), np.zeros(2 * period)
    total = free = 0.0
    for content in of:
        two_way = TwoWay(content.asked)
        marks = np.concatenate(
            [
                _marks(content.target(period), content.asked, period),
                _marks(content.distance(period), content.asked, period),
            ],
            axis=2,
        )
        columns = two_way.residuals(marks).reshape(-1, 2 * period)
        answers = two_way.residuals(content.right[:, :, None]).reshape(-1)
        gram += columns.T @ columns
        moment += columns.T @ answers
        total += float(answers @ answers)
        free += content.asked.sum() - sum(content.asked.shape) + 1
    effect = np.linalg.pinv(gram, RANK, hermitian=True) @ moment
    left = max(0.0, total - float(moment @ effect))
    variance = left / max(1.0, free - 2 * (period - 1))
    mean = sum(c.right.sum() for c in of) / sum(c.asked.sum() for c in of)
    return Fit(gram, effect, variance, float(mean))


def _marks(
    residue: NDArray[np.int64], asked: NDArray[np.bool_], period: int
) -> NDArray[np.float64]:
    """Indicators of residues (I, J) in the cells that were answered, shape (I, J, period)."""
    flat = indicators(residue.reshape(-1), period).reshape(*residue.shape, period)
    return flat * asked[:, :, None]


def _inside(
    of: Sequence[Content],
    fit: Fit,
    period: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    name: FactorName,
) -> Factor:
    """Target given distance, or distance given target: home residues dealt anew among items.

    The score is the crossproduct of the answers and the factor's indicators, items, prefills and
    the other factor taken out of the indicators. Whole items of a block trade places, with
    whatever their answers at the prefills have in common, so the test is exact where neither
    factor matters. Where the other one does, its part of the answers is orthogonal to the score
    but not to those of other deals: the test then errs on the safe side. (Taking the other
    factor's fit out of the answers first, as Freedman and Lane do, was tried: with few wrong
    answers the fit takes so much of the noise along that 11% of clean runs fell below .05.)
    """
    both = slice(0, period), slice(period, 2 * period)
    own, other = both if name == "target" else both[::-1]
    stratum, home, parts = _items(of, period)
    design, slope = _given(fit.gram, own, other)
    if log_deals(label_counts(stratum, home, period)) < -math.log(alpha):
        return _effects(name, fit.effect[own], design)
    deal = dealt(stratum, home, parts)
    combined = np.zeros((period, 2 * period))
    combined[:, own], combined[:, other] = np.eye(period), -slope
    test = whitened(deal, combined)
    strength = np.einsum("ij,ik,kj->j", design, test.inverse, design)
    return _effects(
        name,
        fit.effect[own],
        design,
        p=permutation_p(deal, test, rng),
        mde=gap_seen(strength, test.rank, alpha, fit.mean),
    )


def _items(
    of: Sequence[Content], period: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Strata, home residues and parts (items, period, 2 period) of all items.

    A part is what an item would add to the sums of answers (items and prefills taken out) by
    target residue, then by distance residue, if its home residue were another.
    """
    strata, parts, first = [], [], 0
    for content in of:
        left = TwoWay(content.asked).residuals(content.right[:, :, None])[:, :, 0]
        by_pad = left @ indicators(content.pad, period)
        by_rest = left @ indicators(content.question - content.pad, period)
        home, residue = np.arange(period)[:, None], np.arange(period)[None, :]
        # Target residue r at home k comes from pads r - k, distance residue r from r + k.
        targets = by_pad[:, (residue - home) % period]
        distances = by_rest[:, (residue + home) % period]
        parts.append(np.concatenate([targets, distances], axis=2))
        merged = merged_blocks(content.block, 2 * period) + first
        strata.append(merged)
        first = int(merged.max()) + 1
    homes = np.concatenate([content.home for content in of])
    return np.concatenate(strata), homes, np.concatenate(parts)


def _between(
    of: Sequence[Content], fit: Fit, period: int, alpha: float, rng: np.random.Generator
) -> Factor:
    """The question: an F test over prefills, guarded by a permutation test.

    What is compared is the level of a prefill once its items, targets and distances are taken
    out, weighted by its answers. Prefills differ for reasons of their own, so that a prefill is
    one unit however many answers it holds.

    Question residues dealt anew among the prefills of a content give an exact p value, but a
    coarse one: where every answer at one residue of four is wrong, two contents of eight prefills
    fall into this pattern in 1 deal of 196, and no run of that size could ever find the most
    blatant corruption at .005. The p value is therefore that of F, which assumes normal levels,
    unless the permutation p value is above ``GUARD``: whole prefills that fail at random would
    mislead F alone.
    """
    levels = _prefills(of, fit, period)
    parts = np.zeros((len(levels.level), period, period))
    every = np.arange(period)
    parts[:, every, every] = (levels.weight * levels.level)[:, None]
    deal = dealt(levels.content, levels.question, parts)
    found = _compared(levels, period, fit.variance)
    counts = label_counts(levels.content, levels.question, period)
    if found.free < 1 or log_deals(counts, alike=True) < -math.log(GUARD):
        return _effects("question", found.effect, found.design)
    guard = permutation_p(deal, whitened(deal, np.eye(period)), rng)
    p = None if guard is None else max(found.p_value, guard if guard > GUARD else 0.0)
    mde = None
    if found.variance > 0 and passes_guard(counts, GUARD):
        strength = np.diag(found.design) / found.variance
        mde = gap_seen(strength, found.rank, alpha, fit.mean, found.free)
    return _effects("question", found.effect, found.design, p=p, mde=mde)


@dataclass(frozen=True, slots=True)
class _Levels:
    """Prefills of all contents; every array has shape (prefills,)."""

    content: NDArray[np.int64]
    question: NDArray[np.int64]
    """Residue of the question's position."""
    level: NDArray[np.float64]
    """Accuracy, all else taken out; its weighted mean is zero in each content."""
    weight: NDArray[np.float64]
    """Answers."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """Weighted analysis of variance of prefill levels by the question's residue."""

    design: NDArray[np.float64]
    """Weighted crossproducts of the residues' indicators within contents, shape (p, p)."""
    effect: NDArray[np.float64]
    """Shape (p,)."""
    variance: float
    """Of a level times its weight: that of a single answer if prefills do not differ."""
    rank: int
    free: int
    """Degrees of freedom of the variance."""
    p_value: float


def _prefills(of: Sequence[Content], fit: Fit, period: int) -> _Levels:
    """Levels of all prefills, targets and distances taken out as fitted."""
    f, g = fit.effect[:period], fit.effect[period:]
    levels, weights = [], []
    for content in of:
        explained = f[content.target(period)] + g[content.distance(period)]
        values = (content.right - explained) * content.asked
        level = TwoWay(content.asked).prefills(values[:, :, None])[:, 0]
        weight = content.asked.sum(axis=0).astype(np.float64)
        levels.append(level - float(weight @ level) / float(weight.sum()))
        weights.append(weight)
    return _Levels(
        content=np.repeat(np.arange(len(of)), [len(level) for level in levels]),
        question=np.concatenate([content.question for content in of]),
        level=np.concatenate(levels),
        weight=np.concatenate(weights),
    )


def _compared(levels: _Levels, period: int, least: float) -> _Compared:
    """Fit and F test; the variance is taken to be at least ``least``, that of a single answer.

    Without that floor a few prefills that happen to agree would make any difference significant.
    """
    from scipy import special

    weight = levels.weight
    marks = centred(indicators(levels.question, period), weight, levels.content)
    design = (marks * weight[:, None]).T @ marks
    moment = (marks * weight[:, None]).T @ levels.level
    effect = np.linalg.pinv(design, RANK, hermitian=True) @ moment
    rank = _rank(design)
    free = len(weight) - int(levels.content.max()) - 1 - rank
    explained = float(moment @ effect)
    left = max(0.0, float(weight @ np.square(levels.level)) - explained)
    variance = max(least, left / max(1, free))
    ratio = explained / max(1, rank) / max(variance, 1e-12)
    p = float(special.fdtrc(max(1, rank), max(1, free), ratio))
    return _Compared(design, effect, variance, rank, free, max(p, 1.0 / (MOST_DRAWS + 1)))


def _given(
    gram: NDArray[np.float64], own: slice, other: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Crossproducts of one factor's indicators with the other factor taken out, and its slope."""
    slope = gram[own, other] @ np.linalg.pinv(gram[other, other], RANK, hermitian=True)
    return gram[own, own] - slope @ gram[other, own], slope


def _rank(design: NDArray[np.float64]) -> int:
    values = np.linalg.eigvalsh(design)
    return int((values > RANK * max(1.0, float(values.max(initial=0.0)))).sum())


def _effects(
    name: FactorName,
    effect: NDArray[np.float64],
    design: NDArray[np.float64],
    *,
    p: float | None = None,
    mde: float | None = None,
) -> Factor:
    """A factor; its effects are known only if the design estimates every residue's."""
    if _rank(design) < len(effect) - 1:
        return Factor(name, p, None, (), None)
    pp = 100.0 * (effect - effect.mean())
    return Factor(name, p, float(pp.max() - pp.min()), tuple(map(float, pp)), mde)
