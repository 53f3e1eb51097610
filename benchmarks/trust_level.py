"""False alarms: worlds without phase, asked in designs that the probe itself drew.

Every run is screened by its smallest chi-square p value, all worlds of a design at once; the test
as it ships, permutations and replication, is run where that is not far from the level.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rows import Row, wilson_text
from scipy import special, stats

from kvphase.probes.design import NeedleDesign, lay_out, needed, replace
from kvphase.stats.looks import looks_at
from kvphase.stats.measure import find
from kvphase.stats.series import per_answer, screen_candidates
from kvphase.stats.simulate import NULLS, RECORD, Layout, answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from kvphase.probes.design import Layout as Placed
    from kvphase.types import Answers, DesignKind

LEVEL = 0.01
DESIGNS = {
    "insequence": NeedleDesign("insequence", 0, records=24, contexts=12, window=16),
    "prefix": NeedleDesign("prefix", 0, records=24, contexts=3, window=16),
}
SPACED = ("spacer-before", "spacer-after")
"""Worlds that need spacers: the published protocol packs its records."""
ALPHA = 0.005
SCREEN_P = 0.01
"""Smallest chi-square p value above which no permutation test can come near `ALPHA`.

Over a dozen candidates the permutation p value of a smallest p value of .01 is about .1."""
SMALL = ("constant", "context", "spacer-before")
RUNS, SMALL_RUNS, CHUNK = 2_000, 200, 50


@dataclass(frozen=True)
class Task:
    """Some of the runs of all worlds in one design."""

    kind: DesignKind
    first: int
    last: int
    worlds: tuple[str, ...]

    @property
    def weight(self) -> float:
        """Processor seconds, roughly: long tasks go first."""
        return (self.last - self.first) * len(self.worlds) * 0.01

    def run(self) -> Counter[tuple[str, str, str]]:
        """Alarms and runs by design, world and way."""
        counts: Counter[tuple[str, str, str]] = Counter()
        design = DESIGNS[self.kind]
        design = replace(design, context_tokens=needed(design, 1, 0))
        looks = looks_at(design.contexts) if self.kind == "insequence" else ()
        for seed in range(self.first, self.last):
            layout = drawn(lay_out(design, seed, 1, 0), np.random.default_rng([seed, 7]))
            asked = [self.answers(layout, world, seed) for world in self.worlds]
            near = smallest_p(asked, looks) <= SCREEN_P if looks else np.ones(len(asked), bool)
            for world, answers, worth in zip(self.worlds, asked, near, strict=True):
                counts[self.kind, world, "runs"] += 1
                counts[self.kind, world, "tested"] += int(worth)
                if worth:
                    rng = np.random.default_rng([seed, 13])
                    counts.update(alarms(answers, world, self.kind, looks, rng))
        return counts

    def answers(self, layout: Layout, world: str, seed: int) -> Answers:
        """Those of one world."""
        rng = np.random.default_rng([seed, sorted(NULLS).index(world), 11])
        return answer(layout, NULLS[world], rng)


def smallest_p(asked: Sequence[Answers], looks: Sequence[int]) -> NDArray[np.float64]:
    """Smallest chi-square p value over looks and candidates of each world, shape (worlds,).

    The worlds share their positions, so that U and V of all of them come from the same counts of
    residues in strata: the statistic of `kvphase.stats.score.Scores` for many outcomes at once.
    """
    found = np.ones(len(asked))
    for look in looks:
        part = per_answer(asked[0].where(asked[0].context < look))
        outcomes = np.stack([a.correct[a.context < look] for a in asked]).astype(np.float64)
        strata = int(part.stratum.max()) + 1
        size = np.bincount(part.stratum, minlength=strata).astype(np.float64)
        right = np.stack([np.bincount(part.stratum, y, strata) for y in outcomes])
        variance = (right - right**2 / size) / np.maximum(size - 1, 1)
        for period in screen_candidates(part):
            label = part.stratum * period + part.phase % period
            counts = np.bincount(label, minlength=strata * period).reshape(strata, period)
            sums = [np.bincount(part.phase % period, y, period) for y in outcomes]
            score = np.stack(sums) - (right / size) @ counts
            joint = counts[:, :, None] * (np.eye(period) - (counts / size[:, None])[:, None, :])
            covariance = np.einsum("ws,sij->wij", variance, joint)
            values, vectors = np.linalg.eigh(covariance)
            keep = values > 1e-9 * np.maximum(1.0, values.max(axis=1, keepdims=True))
            turned = np.einsum("wij,wi->wj", vectors, score)
            statistic = np.where(keep, turned**2 / np.where(keep, values, 1.0), 0.0).sum(axis=1)
            p = special.chdtrc(np.maximum(keep.sum(axis=1), 1), statistic)
            found = np.minimum(found, p)
    return found


def drawn(placed: Iterable[Placed], rng: np.random.Generator) -> Layout:
    """The questions of generated prompts: asked prefill by prefill, each in a random order."""
    columns = [_questions(one, rng) for one in placed]
    joined = {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}
    n = len(joined["position"])
    joined["order"] = np.arange(n) / n
    return Layout(**joined)


def _questions(one: Placed, rng: np.random.Generator) -> dict[str, np.ndarray]:
    starts = np.array(one.starts)
    before = np.diff(starts, prepend=starts[0] - RECORD) - RECORD
    after = np.append(before[1:], 7)
    asked = np.array(one.asked)[rng.permutation(len(one.asked))]
    n = len(asked)
    block = dict(zip(one.asked, one.blocks, strict=True))
    return {
        "position": starts[asked],
        "depth": (starts[asked] - starts[0]) / (starts[-1] - starts[0]),
        "item": asked,
        "block": np.array([block[i] for i in asked.tolist()]),
        "context": np.full(n, one.context),
        "pad": np.full(n, one.pad),
        "before": before[asked],
        "after": after[asked],
    }


def alarms(
    answers: Answers,
    world: str,
    kind: DesignKind,
    looks: Sequence[int],
    rng: np.random.Generator,
) -> Counter[tuple[str, str, str]]:
    """One run, tested once and (in-sequence) also with early looks."""
    found = find(answers, looks, kind=kind, modulus=8, rng=rng)
    if not looks:
        return Counter({(kind, world, "one look"): int(found.replicates)})
    # The last look is the test of everything; only where it says nothing is that the end of it.
    last = found.looks[-1].p_value
    whole = found.replicates or (last is not None and last <= ALPHA)
    if whole:
        whole = find(answers, kind=kind, modulus=8, rng=rng).replicates
    return Counter(
        {
            (kind, world, "early looks"): int(found.replicates),
            (kind, world, "one look"): int(whole),
        }
    )


def tasks(*, small: bool) -> list[Task]:
    """Every design and world, in chunks."""
    runs = SMALL_RUNS if small else RUNS
    found = []
    for kind in DESIGNS:
        worlds = [w for w in (SMALL if small else NULLS) if kind == "insequence" or w not in SPACED]
        found += [
            Task(kind, first, min(first + CHUNK, runs), tuple(worlds))
            for first in range(0, runs, CHUNK)
        ]
    return found


def bound(runs: int) -> int:
    """Most alarms at a true level of 1%: 28 of 2,000; others are as unlikely to be passed."""
    unlikely = stats.binom.sf(28, 2_000, LEVEL)
    return int(stats.binom.isf(unlikely, runs, LEVEL))


def rows(results: Iterable[Counter[tuple[str, str, str]]]) -> list[Row]:
    """One row a design, world and way."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for result in results:
        counts.update(result)
    found = []
    ways = [
        (kind, world, way)
        for kind, world, runs in sorted(counts)
        if runs == "runs"
        for way in (("one look", "early looks") if kind == "insequence" else ("one look",))
    ]
    for kind, world, way in ways:
        hits, runs = counts[kind, world, way], counts[kind, world, "runs"]
        most = bound(runs)
        found.append(
            Row(
                "false alarms",
                f"{kind}, {world}, {way}",
                wilson_text(hits, runs),
                f"<= {most} of {runs}",
                hits <= most,
                {"alarms": hits, "runs": runs, "tested": counts[kind, world, "tested"]},
            )
        )
    return found
