"""False alarms: worlds without phase, asked in designs that the probe itself drew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rows import Row, wilson_text
from scipy import stats

from kvphase.probes.design import NeedleDesign, lay_out, needed, replace
from kvphase.stats.looks import looks_at
from kvphase.stats.measure import find
from kvphase.stats.simulate import NULLS, RECORD, Layout, answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvphase.probes.design import Layout as Placed
    from kvphase.types import DesignKind

LEVEL = 0.01
DESIGNS = {
    "insequence": NeedleDesign("insequence", 0, records=24, contexts=12, window=16),
    "prefix": NeedleDesign("prefix", 0, records=24, contexts=3, window=16),
}
SPACED = ("spacer-before", "spacer-after")
"""Worlds that need spacers: the published protocol packs its records."""
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
        for seed in range(self.first, self.last):
            layout = drawn(lay_out(design, seed, 1, 0), np.random.default_rng([seed, 7]))
            for world in self.worlds:
                rng = np.random.default_rng([seed, sorted(NULLS).index(world), 11])
                counts.update(alarms(layout, world, self.kind, design.contexts, rng))
        return counts


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
    layout: Layout, world: str, kind: DesignKind, contexts: int, rng: np.random.Generator
) -> Counter[tuple[str, str, str]]:
    """One run, tested once and (in-sequence) also with early looks."""
    answers = answer(layout, NULLS[world], rng)
    looks = looks_at(contexts) if kind == "insequence" else ()
    found = find(answers, looks, kind=kind, modulus=8, rng=rng)
    counts = Counter({(kind, world, "runs"): 1})
    if not looks:
        counts[kind, world, "one look"] = int(found.replicates)
        return counts
    counts[kind, world, "early looks"] = int(found.replicates)
    # The last look is the test of everything; only where it says nothing is that the end of it.
    last = found.looks[-1].p_value
    whole = found.replicates or (last is not None and last <= 0.005)
    if whole:
        whole = find(answers, kind=kind, modulus=8, rng=rng).replicates
    counts[kind, world, "one look"] = int(whole)
    return counts


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
    for kind, world, way in sorted(counts, key=str):
        if way == "runs":
            continue
        hits, runs = counts[kind, world, way], counts[kind, world, "runs"]
        most = bound(runs)
        found.append(
            Row(
                "false alarms",
                f"{kind}, {world}, {way}",
                wilson_text(hits, runs),
                f"<= {most} of {runs}",
                hits <= most,
                {"alarms": hits, "runs": runs},
            )
        )
    return found
