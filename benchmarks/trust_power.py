"""Power: gaps of known size and shape, the questions they need, and what was promised of them.

*Batches*: 100 invented models answer the same questions; the score statistics are prepared once for
all of them and compared with the critical value that permutations of a flat model give. That is the
shipped statistic without its cost, so that 40,000 questions can be had. *Shipped*: the test, the
naming of the period and its replication as `kvphase check` calls them.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from rows import Row, wilson_text
from scipy import special, stats

from kvphase.stats.counts import measure_counts
from kvphase.stats.measure import find
from kvphase.stats.permute import projector
from kvphase.stats.power import LARGEST_PERIOD, POWER, mde_pp
from kvphase.stats.score import scores
from kvphase.stats.series import per_answer, screen_candidates
from kvphase.stats.simulate import answer, constant, insequence, periodic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from kvphase.stats.simulate import Layout

ALPHA = 0.005
GAPS = (0.03, 0.06, 0.15, 0.40)
PERIODS = (*range(2, 13), 32, 128)
SHAPES = ("square", "sine", "slot")
MEAN = 0.7
CONTEXTS = 16
LARGEST = 40_000
"""Questions up to which a cell is simulated."""
SHIPPED_LARGEST = 1_500
"""Questions up to which the shipped test is run as well."""
BATCH, SHIPPED = 100, 2
SMALL_CELLS = {(0.40, 4, "slot"), (0.40, 8, "square"), (0.15, 2, "square")}
PROMISES = tuple((n, mean) for n in (480, 4_800) for mean in (0.3, 0.7, 0.9, 0.95))
PUBLISHED_RUNS, OF_V41 = 100, 500


def profile(shape: str, period: int, gap: float) -> NDArray[np.float64]:
    """Accuracy at each residue, best minus worst ``gap``, mean `MEAN`."""
    r = np.arange(period)
    if shape == "slot":
        values = (r > 0).astype(float)
    elif shape == "square":
        values = (r >= period // 2).astype(float)
    else:
        values = np.cos(2 * math.pi * r / period)
        values = (values - values.min()) / (values.max() - values.min())
    return MEAN + gap * (values - values.mean())


@functools.cache
def critical(candidates: tuple[int, ...]) -> float:
    """Logarithm of the smallest chi-square p value at which a run is significant."""
    rng = np.random.default_rng(17)
    n = max(2_400, 6 * max(candidates))
    layout = insequence(rng, contexts=CONTEXTS, records=n // CONTEXTS)
    series = per_answer(answer(layout, constant(MEAN), rng))
    prepared = scores(series, candidates)
    draw = projector(series, series.stratum, prepared.matrix, rng)
    smallest = np.concatenate([prepared.log_p(draw(500)).min(axis=1) for _ in range(20)])
    return float(np.quantile(smallest, ALPHA))


def needed(values: NDArray[np.float64], level: float) -> int:
    """Questions for 95% power: noncentral chi-square, every residue asked as often."""
    threshold = special.chdtri(len(values) - 1, level)
    wanted = special.chndtrinc(threshold, len(values) - 1, 1 - POWER)
    return math.ceil(wanted * values.mean() * (1 - values.mean()) / values.var())


def batch(
    layout: Layout, values: NDArray[np.float64], rng: np.random.Generator, runs: int
) -> tuple[int, int]:
    """Runs that were significant, and among them those whose best candidate is the period."""
    chance = values[layout.position % len(values)]
    outcomes = rng.random((runs, len(chance)), dtype=np.float32) < chance.astype(np.float32)
    first = answer(layout, lambda *_: chance, rng)
    series = per_answer(first)
    candidates = screen_candidates(series)
    prepared = scores(series, candidates)
    log_p = prepared.log_p(outcomes @ prepared.matrix)
    found = log_p.min(axis=1) <= critical(candidates)
    best = np.array(prepared.periods)[log_p.argmin(axis=1)]
    return int(found.sum()), int((found & (best == len(values))).sum())


def asked(n: int, rng: np.random.Generator) -> Layout:
    """At least ``n`` questions in whole blocks of sixteen contexts."""
    return insequence(rng, contexts=CONTEXTS, records=max(12, -(-n // CONTEXTS)))


@dataclass(frozen=True)
class Cell:
    """One gap, period and shape at the number of questions that it should need."""

    gap: float
    period: int
    shape: str
    weight: float = 0.0

    def run(self) -> dict[str, Any]:
        """Shares found."""
        values = profile(self.shape, self.period, self.gap)
        seed = [int(1000 * self.gap), self.period, SHAPES.index(self.shape)]
        rng = np.random.default_rng(seed)
        every = screen_candidates(per_answer(answer(asked(4_800, rng), constant(MEAN), rng)))
        n = max(needed(values, math.exp(critical(every))), 12 * CONTEXTS, 10 * self.period)
        cell = {"gap": self.gap, "period": self.period, "shape": self.shape, "needed": n}
        if n > LARGEST:
            return cell
        layout = asked(n, rng)
        found, best = batch(layout, values, rng, BATCH)
        cell |= {"runs": BATCH, "found": found, "best": best}
        if n <= SHIPPED_LARGEST:
            cell |= self.shipped(n, values)
        return cell

    def shipped(self, n: int, values: NDArray[np.float64]) -> dict[str, Any]:
        """The test as it ships, on fresh questions each time."""
        whole, right = 0, 0
        for seed in range(SHIPPED):
            rng = np.random.default_rng([seed, self.period, int(1000 * self.gap)])
            layout = asked(n, rng)
            answers = answer(layout, periodic(MEAN, values.tolist()), rng)
            found = find(answers, kind="insequence", modulus=8, rng=rng)
            whole += found.replicates
            right += found.replicates and found.period == self.period
        return {"shipped_runs": SHIPPED, "shipped_found": whole, "shipped_right": right}


@dataclass(frozen=True)
class Promise:
    """The smallest detectable gap that a run of this size and mean promises."""

    n: int
    mean: float
    runs: int = 200
    weight: float = 3.0

    def run(self) -> dict[str, Any]:
        """The promise, and the least favourable slot's share found at it."""
        rng = np.random.default_rng([self.n, int(1000 * self.mean)])
        layout = asked(self.n, rng)
        series = per_answer(answer(layout, constant(self.mean), rng))
        candidates = screen_candidates(series)
        promised = mde_pp(series, candidates, ALPHA)
        if promised is None:
            raise AssertionError("every residue has answers")
        shares = {
            factor: self.least(layout, factor * promised / 100, rng)
            for factor in (0.7, 0.8, 0.9, 1.0, 1.1)
        }
        return {
            "n": self.n,
            "mean": self.mean,
            "mde_pp": promised,
            "shares": shares,
            "runs": self.runs,
        }

    def least(self, layout: Layout, gap: float, rng: np.random.Generator) -> int | None:
        """Runs found of the period up to 8 whose weak slot is found least often."""
        found = []
        for period in range(2, LARGEST_PERIOD + 1):
            values = np.full(period, self.mean + gap / period)
            values[0] -= gap
            if values.min() >= 0 and values.max() <= 1:
                found.append(batch(layout, values, rng, self.runs)[0])
        return min(found, default=None)


@dataclass(frozen=True)
class Published:
    """A published model: its curve folded by its stride, asked as often as it was."""

    index: int
    runs: int = PUBLISHED_RUNS

    @property
    def weight(self) -> float:
        """Seconds, roughly."""
        return self.runs / 20

    def run(self) -> dict[str, Any]:
        """How often the counts say phase-sensitive, and how often with the right period."""
        model = models()[self.index]
        residues, stride = len(model["correct"]), model["stride"]
        accuracy = np.array(model["correct"]) / model["n"]
        folded = accuracy.reshape(-1, stride).mean(axis=0)
        rng = np.random.default_rng([self.index, 29])
        found = right = 0
        n = [model["n"]] * residues
        for seed in range(self.runs):
            correct = rng.binomial(n, np.tile(folded, residues // stride))
            verdict = measure_counts(range(residues), n, correct.tolist(), seed=seed)
            found += verdict.verdict == "phase-sensitive"
            right += verdict.verdict == "phase-sensitive" and verdict.period == stride
        in_rows, _ = batch(asked(sum(n), rng), folded, rng, BATCH)
        return {
            "model": model["name"],
            "stride": stride,
            "answers": sum(n),
            "gap_pp": 100 * float(folded.max() - folded.min()),
            "runs": self.runs,
            "found": found,
            "right": right,
            "in_rows": in_rows,
        }


@functools.cache
def models() -> list[dict[str, Any]]:
    """The published needle curves."""
    file = resources.files("kvphase.data") / "published.json"
    found: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["niah"]["models"]
    return found


def tasks(*, small: bool) -> list[Cell | Promise | Published]:
    """Cells, promises and published models."""
    if small:
        cells = [Cell(*cell) for cell in sorted(SMALL_CELLS)]
        return [*cells, Promise(480, 0.7, 100), Promise(1_920, 0.95, 100), Published(4)]
    cells = [Cell(g, p, s, weight=1 / g) for g in GAPS for p in PERIODS for s in SHAPES]
    *others, last = range(len(models()))
    published = [*map(Published, others), Published(last, OF_V41)]
    return [*cells, *(Promise(*p) for p in PROMISES), *published]


def rows(results: Iterable[dict[str, Any]]) -> list[Row]:
    """The cells of each gap and shape in one row; promises and models each in their own."""
    results = list(results)
    cells = [r for r in results if "shape" in r]
    found = []
    for gap in GAPS:
        for shape in SHAPES:
            mine = [c for c in cells if (c["gap"], c["shape"]) == (gap, shape)]
            found += _cells(gap, shape, mine) if mine else []
    found += [_promised(r) for r in results if "mde_pp" in r]
    found += [_published(r) for r in results if "model" in r]
    return found


def _cells(gap: float, shape: str, cells: Sequence[dict[str, Any]]) -> list[Row]:
    cells = sorted(cells, key=lambda c: c["period"])
    data = {"cells": cells}
    asks = ", ".join(f"{c['period']}: {c['needed']:,}" for c in cells)
    rows = [Row("power", f"{100 * gap:.0f} points, {shape}: questions by period", asks, data=data)]
    simulated = [c for c in cells if "found" in c]
    if simulated:
        worst = min(simulated, key=lambda c: c["found"])
        hits, runs = worst["found"], worst["runs"]
        # At a true power of 95% the least of 156 cells is below this once in a hundred times.
        least = int(stats.binom.ppf(0.01 / 156, runs, POWER))
        what = f"{100 * gap:.0f} points, {shape}: found, least of {len(simulated)} periods"
        figure = f"{hits}/{runs} (period {worst['period']})"
        rows.append(Row("power", what, figure, f">= {least} of {runs}", hits >= least))
    shipped = [c for c in cells if "shipped_runs" in c]
    if shipped:
        rows.append(_shipped(gap, shape, shipped))
    return rows


def _shipped(gap: float, shape: str, cells: Sequence[dict[str, Any]]) -> Row:
    runs, whole, right = (
        sum(c[f"shipped_{name}"] for c in cells) for name in ("runs", "found", "right")
    )
    # Of findings 4 to 6% do not replicate: 95% of 95%, and chance.
    least = int(stats.binom.ppf(0.001, runs, 0.9))
    return Row(
        "power",
        f"{100 * gap:.0f} points, {shape}: shipped test, {len(cells)} periods",
        f"found {whole}/{runs}, right period {right}/{whole}",
        f">= {least} of {runs}",
        whole >= least,
    )


def _promised(r: dict[str, Any]) -> Row:
    shares = {factor: share for factor, share in r["shares"].items() if share is not None}
    runs = r["runs"]
    at = shares.get(1.0)
    enough = [factor for factor, share in shares.items() if share >= POWER * runs]
    seen = f"{min(enough) * r['mde_pp']:.1f}" if enough else "more"
    least = int(stats.binom.ppf(0.001, runs, POWER))
    return Row(
        "detectable gap",
        f"{r['n']:,} questions, mean {r['mean']}: promised {r['mde_pp']:.1f} points",
        f"found {at}/{runs}; 95% seen at {seen} points",
        f">= {least} of {runs}",
        None if at is None else at >= least,
        r,
    )


def _published(r: dict[str, Any]) -> Row:
    runs = r["runs"]
    return Row(
        "published",
        f"{r['model']}: {r['gap_pp']:.1f} points folded, period {r['stride']}, {r['answers']:,}",
        f"found {wilson_text(r['found'], runs)}, right period {r['right']}; "
        f"as rows {r['in_rows']}/{BATCH}",
        ">= 99 of 100",
        min(r["found"] / runs, r["right"] / runs, r["in_rows"] / BATCH) >= 0.99,
        r,
    )
