"""The gap: bias and coverage of the cross-fitted one, against the contrast that was selected.

The cross-fitted gap estimates the mean true difference of the two pairs of phases that the halves
named. Raw gaps and what chance gives for them stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rows import Row
from scipy import stats

from kvphase.stats import measure
from kvphase.stats.gap import crossfit, null_pp
from kvphase.stats.looks import looks_at
from kvphase.stats.measure import CONTEXTS_FOR_INTERVAL
from kvphase.stats.series import cells, per_answer
from kvphase.stats.simulate import answer, insequence, periodic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from kvphase.stats.simulate import Layout, Truth

LOW, HIGH = 0.93, 0.97
WORLDS: dict[str, tuple[float, list[float]]] = {
    "no effect, period 2": (0.7, [0.0] * 2),
    "no effect, period 4": (0.7, [0.0] * 4),
    "no effect, period 8": (0.7, [0.0] * 8),
    "no effect near the ceiling": (0.95, [0.0] * 8),
    "sine of 6 points, period 4": (0.7, [0.0, 0.03, 0.0, -0.03]),
    "slot of 15 points, period 8": (0.73, [0.0] * 7 + [-0.15]),
    "square of 15 points, period 8": (0.7, [0.075] * 4 + [-0.075] * 4),
    "8 points near the ceiling, period 4": (0.96, [0.0] * 3 + [-0.08]),
    "as DeepSeek-V4-Flash-Base, period 4": (0.52, [-0.08, 0.18, 0.13, -0.21]),
    "as DeepSeek-V4.1-Flash, period 2": (0.923, [0.0265, -0.0265]),
    "contexts that differ, 15 points, period 4": (0.7, [0.0, 0.0, 0.0, -0.15]),
}
DIFFERING = "contexts that differ, 15 points, period 4"
SIZES = {(4, 120): "over blocks", (16, 96): "over contexts"}
RUNS, SMALL_RUNS, CURVES = 2_000, 300, 40
SMALL = ("no effect, period 8", "slot of 15 points, period 8", "as DeepSeek-V4.1-Flash, period 2")
FOUND_RUNS = 60


def truth_of(world: str) -> Truth:
    """The world's accuracy; where contexts differ, each has its own level."""
    mean, profile = WORLDS[world]
    plain = periodic(mean, profile)
    if world != DIFFERING:
        return plain

    def truth(layout: Layout, rng: np.random.Generator) -> NDArray[np.float64]:
        level = rng.uniform(-0.15, 0.15, size=int(layout.context.max()) + 1)
        chance: NDArray[np.float64] = plain(layout, rng) + level[layout.context]
        return chance

    return truth


@dataclass(frozen=True)
class Coverage:
    """One world at one size."""

    world: str
    contexts: int
    records: int
    runs: int

    @property
    def weight(self) -> float:
        """Seconds, roughly."""
        return self.runs * self.contexts * self.records / 1e6

    def run(self) -> dict[str, Any]:
        """Estimates, selected contrasts, how often one lay in the other's interval."""
        mean, profile = WORLDS[self.world]
        accuracy = mean + np.array(profile) - np.mean(profile)
        fold, truth = len(profile), truth_of(self.world)
        sums = np.zeros(4)
        covered = done = 0
        seed = [list(WORLDS).index(self.world), self.contexts]
        rng = np.random.default_rng(seed)
        null = []
        for number in range(self.runs):
            layout = insequence(rng, contexts=self.contexts, records=self.records)
            answers = answer(layout, truth, rng)
            phase = answers.position % fold
            few = self.contexts < CONTEXTS_FOR_INTERVAL
            cluster = cells(answers.context, answers.block) if few else answers.context
            correct = answers.correct.astype(np.float64)
            fitted = crossfit(correct, phase, cluster, rng)
            if fitted is None:
                continue
            selected = 100 * float(np.mean([accuracy[b] - accuracy[w] for b, w in fitted.named]))
            raw = np.bincount(phase, correct) / np.bincount(phase)
            error = fitted.pp - selected
            sums += [error, error * error, selected, 100 * (raw.max() - raw.min())]
            covered += fitted.ci95[0] <= selected <= fitted.ci95[1]
            done += 1
            if number < CURVES:
                null.append(null_pp(per_answer(answers), fold, rng))
        bias, square, selected, raw_pp = sums / done
        return {
            "world": self.world,
            "contexts": self.contexts,
            "records": self.records,
            "runs": done,
            "true_pp": 100 * float(np.ptp(accuracy)),
            "selected_pp": selected,
            "bias_pp": bias,
            "standard_error": float(np.sqrt((square - bias**2) / done)),
            "covered": covered,
            "raw_pp": raw_pp,
            "null_pp": float(np.mean(null)),
        }


@dataclass(frozen=True)
class Found:
    """What is reported of runs in which something was found: a gap of every second run's size."""

    early: bool
    first: int
    last: int
    weight: float = 15.0

    def run(self) -> dict[str, Any]:
        """Gap errors given a finding; fresh answers only where a look found it."""
        gap, errors, covered = 0.20, [], 0
        truth = periodic(0.7, [0.0, 0.0, 0.0, -gap])
        contexts, records = 32, 24
        for seed in range(self.first, self.last):
            rng = np.random.default_rng([seed, 31])
            answers = answer(insequence(rng, contexts=contexts, records=records), truth, rng)
            looks = looks_at(contexts) if self.early else ()
            verdict = measure(answers, looks=looks, seed=seed)
            if verdict.verdict != "phase-sensitive" or verdict.period != 4:
                continue
            if verdict.fresh != self.early or verdict.gap.crossfit_pp is None:
                continue
            errors.append(verdict.gap.crossfit_pp - 100 * gap)
            low, high = verdict.gap.ci95 or (0.0, 0.0)
            covered += low <= 100 * gap <= high
        return {"early": self.early, "found_errors": errors, "covered": covered}


def tasks(*, small: bool) -> list[Coverage | Found]:
    """Worlds and sizes."""
    if small:
        return [Coverage(world, 16, 96, SMALL_RUNS) for world in SMALL]
    whole = [Coverage(world, *size, RUNS) for world in WORLDS for size in SIZES]
    parts = [
        Found(early, first, first + 15)
        for early in (False, True)
        for first in range(0, FOUND_RUNS, 15)
    ]
    return [*whole, *parts]


def rows(results: Iterable[dict[str, Any]]) -> list[Row]:
    """One row a world and size, then what is said of findings."""
    results = list(results)
    found = [_covered(r) for r in results if "world" in r]
    for early in (False, True):
        parts = [r for r in results if r.get("early") is early]
        if parts:
            found.append(_found(parts, early=early))
    return found


def _covered(r: dict[str, Any]) -> Row:
    share, runs = r["covered"] / r["runs"], r["runs"]
    # Outside the aim by more than chance alone would put it there once in a thousand times.
    least = stats.binom.ppf(0.001, runs, LOW) / runs
    most = stats.binom.isf(0.001, runs, HIGH) / runs
    unbiased = abs(r["bias_pp"]) <= 4 * r["standard_error"]
    size = f"{r['contexts']} x {r['records']}"
    return Row(
        "gap",
        f"{r['world']}, {size} {SIZES[r['contexts'], r['records']]}",
        f"coverage {share:.1%}; bias {r['bias_pp']:+.2f} of {r['selected_pp']:.1f} points; "
        f"raw {r['raw_pp']:.1f}, by chance {r['null_pp']:.1f}, true {r['true_pp']:.1f}",
        f"{LOW:.0%} to {HIGH:.0%}, |bias| <= {4 * r['standard_error']:.2f}",
        bool(least <= share <= most and unbiased),
        r,
    )


def _found(parts: list[dict[str, Any]], *, early: bool) -> Row:
    errors = np.concatenate([r["found_errors"] for r in parts])
    covered = sum(r["covered"] for r in parts)
    what = "found at an early look, fresh answers" if early else "found, one look"
    n = len(errors)
    figure = f"{n} runs" if not n else f"error {errors.mean():+.1f} points; coverage {covered}/{n}"
    data = {"early": early, "n": n, "covered": covered, "errors": errors.tolist()}
    return Row("gap", f"20 points, period 4, 768 answers: {what}", figure, data=data)
