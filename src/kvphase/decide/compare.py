"""Several runs side by side: paired where they asked the same, ranked by their worst phase."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvphase.catalogue import message
from kvphase.decide.comparable import common_lengths
from kvphase.decide.everywhere import everywhere
from kvphase.decide.pairs import (
    gap_difference,
    mean_difference,
    pattern_paired,
    pattern_unpaired,
)
from kvphase.decide.phases import (
    chance_of_wrong_order,
    crossfit_extremes,
    holm,
    tally,
)
from kvphase.stats.curve import curve, extremes
from kvphase.stats.series import cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kvphase.catalogue import Message
    from kvphase.decide.everywhere import Everywhere
    from kvphase.decide.pairs import Estimate, Pattern
    from kvphase.decide.phases import Tally
    from kvphase.runs.evidence import Evidence, Length
    from kvphase.types import Answers, CurvePoint

ALPHA = 0.01
"""Chance that anything at all is said to differ among runs that do not; as that of a verdict."""
CONTEXTS_FOR_INTERVAL = 8
"""As for the gap of one run: with fewer contexts, blocks inside them are the clusters."""
SHARED = 0.5
"""Share of the smaller run's answers that must be to common questions for a paired analysis."""

Finding = Literal["pattern", "level", "both", "steady", "none"]


@dataclass(frozen=True, slots=True)
class Standing:
    """One run at one length."""

    run: int
    """Index of the run as given."""
    n: int
    clusters: int
    mean: float
    worst: float
    """Cross-fitted accuracy of the worst phase, never above the mean; the curve's lowest where it
    cannot be had."""
    crossfitted: bool
    gap_pp: float | None
    """Cross-fitted."""
    lowest: int
    """Residue of the curve's lowest point."""
    curve: tuple[CurvePoint, ...]
    partial: bool
    verdict: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs at one length; differences are first minus second."""

    first: int
    second: int
    paired: bool
    why: Message | None
    """Why they are not paired."""
    n: int
    """Questions in common, or answers of both together where they are not paired."""
    left: int
    """Answers of the two that have no counterpart; 0 where they are not paired."""
    pattern: Pattern
    mean: Estimate | None
    gap: Estimate | None
    apart: bool
    """Mean, gap and order are not paired although the questions are: a run that ended early on a
    finding leaves too few common answers that had no part in it."""
    chance: float | None
    """That the order of the two by worst phase is wrong; None with too few contexts."""
    steady: Everywhere | None = None
    """Tasks that are right at every shift; None unless both are runs of one suite."""
    pattern_holm: float | None = None
    mean_holm: float | None = None
    steady_holm: float | None = None

    @property
    def finding(self) -> Finding:
        """What is shown to differ, at ``ALPHA`` over everything that was tested."""
        pattern = self.pattern_holm is not None and self.pattern_holm <= ALPHA
        level = self.mean_holm is not None and self.mean_holm <= ALPHA
        if pattern:
            return "both" if level else "pattern"
        if level:
            return "level"
        steady = self.steady_holm is not None and self.steady_holm <= ALPHA
        return "steady" if steady else "none"


@dataclass(frozen=True, slots=True)
class Table:
    """All runs at one length."""

    rung: str
    tokens: int | None
    kind: str
    modulus: int
    fold: int
    """Residues among which worst phases and gaps are sought: a period that was found, else the
    modulus."""
    standings: tuple[Standing, ...]
    """Best worst phase first; of equal ones the better mean."""
    pairs: tuple[Pair, ...]
    """In the order of the runs as given."""

    def pair(self, one: int, other: int) -> Pair:
        """The pair of two runs by their indices, in either order."""
        return next(p for p in self.pairs if {p.first, p.second} == {one, other})


@dataclass(frozen=True, slots=True)
class Comparison:
    """What ``kvphase compare`` found."""

    runs: tuple[Evidence, ...]
    tables: tuple[Table, ...]
    left_out: tuple[Message, ...]
    """Lengths that could not be compared, and what differs."""
    confidence: float
    """Of every interval: all of them hold together in 99% of comparisons (Bonferroni)."""


def compare(runs: Sequence[Evidence], seed: int = 0) -> Comparison:
    """Compare runs at every length that they share.

    At each length and for each pair: a test that the difference depends on phase, the differences
    of means and of gaps with intervals, and the chance that the order by worst phase is wrong. The
    p values of all tests of all pairs and lengths are adjusted together by Holm's procedure, the
    intervals by Bonferroni's.

    Args:
        runs: At least two.
        seed: Of signs, splits and draws; the same seed gives the same comparison.

    Raises:
        UsageError: nothing can be compared; the sentence says what differs.
    """
    shared, left_out = common_lengths(runs)
    tests = len(shared) * len(runs) * (len(runs) - 1) // 2
    level = ALPHA / tests
    tables = [_table(rung, lengths, runs, level, seed) for rung, lengths in shared.items()]
    return Comparison(tuple(runs), _adjusted(tables), tuple(left_out), 1.0 - level)


def _table(
    rung: str,
    lengths: Sequence[Length],
    runs: Sequence[Evidence],
    level: float,
    seed: int,
) -> Table:
    fold = _fold(lengths)
    standings = [_standing(i, length, fold, seed) for i, length in enumerate(lengths)]
    # Rounded, so that equal worst phases are equal whatever order their halves were added in.
    ranked = sorted(standings, key=lambda s: (-round(s.worst, 9), -s.mean, s.run))
    place = {standing.run: at for at, standing in enumerate(ranked)}
    pairs = []
    for i, j in combinations(range(len(lengths)), 2):
        rng = np.random.default_rng([seed, 0x636D70, i, j])
        # The higher of the two first, so that the chance speaks of the order that is shown.
        flipped = place[j] < place[i]
        pairs.append(_pair(i, j, lengths, runs, fold, level, rng, flipped=flipped))
    first = lengths[0]
    return Table(rung, first.tokens, first.kind, first.modulus, fold, tuple(ranked), tuple(pairs))


def _fold(lengths: Sequence[Length]) -> int:
    """The one period that some run was found to have, else the modulus of the curves."""
    modulus = lengths[0].modulus
    periods = {length.period for length in lengths if length.period is not None}
    if len(periods) != 1:
        return modulus
    period = periods.pop()
    only_residues = any(length.content is None for length in lengths)
    return modulus if only_residues and modulus % period else period


def _standing(run: int, length: Length, fold: int, seed: int) -> Standing:
    answers = length.level
    counts = tally(answers, clusters(answers, length), fold)
    found = crossfit_extremes(counts, np.random.default_rng([seed, 0x776F72]))
    points = curve(answers, length.modulus)
    lowest, _ = extremes(points)
    if lowest is None:
        raise AssertionError("a length has answers")
    return Standing(
        run=run,
        n=len(answers),
        clusters=counts.clusters,
        mean=float(answers.correct.mean()),
        worst=lowest.accuracy if found is None else found.worst,
        crossfitted=found is not None,
        gap_pp=None if found is None else found.gap_pp,
        lowest=lowest.residue,
        curve=points,
        partial=length.partial,
        verdict=length.verdict,
    )


def clusters(answers: Answers, length: Length) -> NDArray[np.int64]:
    """What is independent, shape (n,): contexts, or with fewer than eight what they are made of.

    As for the gap of one run: blocks in sequence, cycles of the pad in prefix padding. The tasks of
    a suite are never taken apart: what is said of a suite is said of tasks like its own.
    """
    cluster = length.cluster(answers)
    if length.kind == "suite" or len(np.unique(cluster)) >= CONTEXTS_FOR_INTERVAL:
        return cluster
    if length.kind == "insequence":
        return cells(cluster, answers.block)
    return cells(cluster, answers.pad // length.modulus)


def _pair(
    i: int,
    j: int,
    lengths: Sequence[Length],
    runs: Sequence[Evidence],
    fold: int,
    level: float,
    rng: np.random.Generator,
    *,
    flipped: bool,
) -> Pair:
    one, two = lengths[i], lengths[j]
    at = matched(one, two)
    together = at is not None
    first, second = one.level, two.level
    steady = None
    if at is None:
        counts = one.content is None or two.content is None
        pattern = pattern_unpaired(
            one.answers, two.answers, one.kind, one.modulus, rng, counts=counts
        )
    else:
        common = _aligned(one.answers, at[0]), _aligned(two.answers, at[1])
        # Blocks and contexts are those of the first run: the questions are the same.
        mine = common[0]
        common = mine, replace(common[1], context=mine.context, block=mine.block, pad=mine.pad)
        pattern = pattern_paired(*common, one.kind, one.modulus, rng, one.cluster(mine))
        steady = everywhere(*common) if one.kind == "suite" else None
        later = one.fresh[at[0]] & two.fresh[at[1]]
        together = float(later.mean()) >= SHARED
        if together:
            first, second = common[0].where(later), common[1].where(later)
    counted = (
        tally(first, clusters(first, one), fold),
        tally(second, clusters(second, one if together else two), fold),
    )
    return Pair(
        first=i,
        second=j,
        paired=at is not None,
        why=None if at is not None else _why_unpaired(runs[i], runs[j]),
        n=len(at[0]) if at is not None else len(first) + len(second),
        left=len(one.answers) + len(two.answers) - 2 * len(at[0]) if at is not None else 0,
        pattern=pattern,
        mean=mean_difference(*counted, level, paired=together),
        gap=gap_difference(*counted, level, rng, paired=together),
        apart=at is not None and not together,
        chance=_chance(counted, rng, paired=together, flipped=flipped),
        steady=steady,
    )


def _chance(
    counted: tuple[Tally, Tally], rng: np.random.Generator, *, paired: bool, flipped: bool
) -> float | None:
    """That the order of two runs by worst phase is wrong, the higher one first if not flipped."""
    high, low = counted[::-1] if flipped else counted
    # The same splits for both: runs that answered the same are equally good, not by chance apart.
    seed = int(rng.integers(2**32))
    ends = [crossfit_extremes(run, np.random.default_rng(seed)) for run in (high, low)]
    if ends[0] is None or ends[1] is None:
        return None
    difference = ends[0].worst - ends[1].worst
    return chance_of_wrong_order(high, low, difference, rng, shared=paired)


def matched(one: Length, two: Length) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Rows of the two that asked the same, in the first one's order, shape (shared,) each.

    The same is the same prompt token by token with the same target. Runs that stopped early or
    were interrupted are paired on what both answered.

    Returns:
        None where that is less than half of the smaller run: leaving so much out would compare
        something else than the runs.
    """
    if one.content is None or two.content is None:
        return None
    _, first, second = np.intersect1d(one.content, two.content, return_indices=True)
    if len(first) < max(1.0, SHARED * min(len(one.content), len(two.content))):
        return None
    order = np.argsort(first)
    return first[order].astype(np.int64), second[order].astype(np.int64)


def _aligned(answers: Answers, rows: NDArray[np.int64]) -> Answers:
    """These rows in this order."""
    return replace(answers, **{c.name: getattr(answers, c.name)[rows] for c in fields(answers)})


def _why_unpaired(one: Evidence, two: Evidence) -> Message:
    """What made the questions differ, as far as the files tell."""
    for run in (one, two):
        if run.counts:
            return message("decide.unpaired-counts", name=run.name)
    if one.tokenizer != two.tokenizer:
        return message("decide.unpaired-tokenizer")
    if one.seed != two.seed:
        return message("decide.unpaired-seed", one=one.seed, two=two.seed)
    return message("decide.unpaired-design")


def _adjusted(tables: Sequence[Table]) -> tuple[Table, ...]:
    """The tables with all p values adjusted together."""
    pairs = [pair for table in tables for pair in table.pairs]
    raw = [pair.pattern.p_value for pair in pairs]
    raw += [None if pair.mean is None else pair.mean.p_value for pair in pairs]
    raw += [None if pair.steady is None else pair.steady.p_value for pair in pairs]
    adjusted = iter(holm([p for p in raw if p is not None]))
    told = [None if p is None else next(adjusted) for p in raw]
    n = len(pairs)
    made = iter(
        replace(pair, pattern_holm=told[k], mean_holm=told[n + k], steady_holm=told[2 * n + k])
        for k, pair in enumerate(pairs)
    )
    return tuple(replace(table, pairs=tuple(next(made) for _ in table.pairs)) for table in tables)
