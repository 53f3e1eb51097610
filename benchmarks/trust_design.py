"""Designs: what a target's residue is independent of, and whether the ways of asking agree."""

from __future__ import annotations

import asyncio
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rows import Row
from scipy import stats

import kvphase
from kvphase.probes.content import again
from kvphase.probes.design import NeedleDesign, needed
from kvphase.probes.needle import NeedlePlan, plan_needle
from kvphase.runtimes.detect import open_runtime
from kvphase.stats.simulate import RECORD
from kvphase.tokens import survey
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from kvphase.types import Ask, Runtime

TOYS = {"toy:w8s4": 4, "toy:w4s4": 4, "toy:w8s8": 8}
SIGMAS = 4.5
"""Largest of some 200 standard normal deviates: above it once in a thousand times."""
MODULI = (2, 3, 4, 6, 8)


async def planned(runtime: Runtime, seed: int, *, records: int, contexts: int) -> NeedlePlan:
    """A default needle run of a toy."""
    vocab = await survey(runtime.tokenize)
    design = NeedleDesign("insequence", 0, records, contexts, window=16)
    design = replace(
        design,
        context_tokens=needed(design, len(runtime.limits.bos), 0),
        repeats=0,
        cold=0,
        alone=0,
    )
    return plan_needle(vocab, runtime.limits, design, seed)


@dataclass(frozen=True)
class Independence:
    """Generated questions: residues against everything else that a question has."""

    designs: int
    weight: float = 30.0

    def run(self) -> dict[str, Any]:
        """Standardised differences of means by residue, for each modulus and each property."""
        columns = asyncio.run(self.columns())
        residue_of = columns.pop("position")
        found = {}
        for name, values in columns.items():
            found[name] = max(
                _largest(residue_of % modulus, values, columns["design"]) for modulus in MODULI
            )
        found.pop("design")
        return {"questions": len(residue_of), "independence": found}

    async def columns(self) -> dict[str, NDArray[np.float64]]:
        """Properties of all questions; the item's key and value stand for its difficulty."""
        parts: list[dict[str, NDArray[Any]]] = []
        async with open_runtime("toy:w8s4") as runtime:
            for seed in range(self.designs):
                plan = await planned(runtime, seed, records=24, contexts=20)
                parts += [_properties(plan, seed, batch) for batch in plan.batches()]
        return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def _properties(plan: NeedlePlan, seed: int, batch: list[Ask]) -> dict[str, NDArray[Any]]:
    layout = plan.layouts[batch[0].context]
    starts = np.array(layout.starts)
    before = np.diff(starts, prepend=starts[0] - RECORD) - RECORD
    rng = np.random.default_rng(3)
    difficulty = rng.normal(size=1 + max(max(ask.prefix) for ask in batch))
    targets = np.array([ask.target for ask in batch])
    at = np.searchsorted(starts, targets)
    return {
        "position": targets,
        "design": np.full(len(batch), seed * 1_000 + batch[0].context),
        "depth": targets / plan.design.context_tokens,
        "difficulty of the key": difficulty[[ask.suffix[0] for ask in batch]],
        "difficulty of the value": difficulty[[ask.prefix[ask.target + 2] for ask in batch]],
        "question order": np.arange(len(batch)) / len(batch),
        "spacer before": before[at],
        "spacer after": np.append(before[1:], 0)[at],
        "demonstrated neighbour": np.isin(at - 1, layout.demonstrated).astype(float),
    }


def _largest(
    residue: NDArray[np.int64], values: NDArray[np.float64], design: NDArray[np.int64]
) -> float:
    """Largest deviation of a residue's mean within contexts, in standard errors."""
    _, label = np.unique(design, return_inverse=True)
    centred = values - (np.bincount(label, values) / np.bincount(label))[label]
    n = np.bincount(residue)
    mean = np.bincount(residue, centred) / n
    if not centred.std():
        return 0.0
    return float(np.abs(mean * np.sqrt(n)).max() / centred.std())


@dataclass(frozen=True)
class Shared:
    """A toy asked on one shared prefill and again with a prefill for each question."""

    toy: str
    contexts: int
    weight: float = 10.0

    def run(self) -> dict[str, Any]:
        """Answers that differ, and the largest difference of a log-probability."""
        return asyncio.run(self.asked())

    async def asked(self) -> dict[str, Any]:
        """Ask both ways."""
        different = n = 0
        apart = 0.0
        async with open_runtime(self.toy) as runtime:
            plan = await planned(runtime, 1, records=24, contexts=self.contexts)
            for batch in plan.batches():
                for ask in batch:
                    warm = await runtime.complete(ask)
                    cold = await runtime.complete(again(ask, Arm.COLD, b"cold", n))
                    different += warm.text != cold.text
                    apart = max(apart, abs((warm.logprob or 0.0) - (cold.logprob or 0.0)))
                    n += 1
        return {"toy": self.toy, "n": n, "different": different, "apart": apart}


@dataclass(frozen=True)
class Ways:
    """A toy measured in sequence, by prefix padding, and by shifted contexts."""

    toy: str
    weight: float = 40.0

    def run(self) -> dict[str, Any]:
        """Periods and curves modulo the stride."""
        stride = TOYS[self.toy]
        free = kvphase.Budget()
        with tempfile.TemporaryDirectory() as folder:
            common = kvphase.Settings(seed=1, cold=0)
            run = kvphase.check(
                self.toy, replace(common, confirm="always"), out=Path(folder) / "a", budget=free
            )
            padded = kvphase.check(
                self.toy,
                replace(common, design="prefix", questions=1_800),
                out=Path(folder) / "b",
                budget=free,
            )
        confirmed = run.confirmation.confirmation if run.confirmation else None
        curves = {"in sequence": run.verdict.curve, "prefix padding": padded.verdict.curve}
        periods = {"in sequence": run.verdict.period, "prefix padding": padded.verdict.period}
        if confirmed is not None:
            curves["confirm"] = confirmed.curve
            periods["confirm"] = (
                confirmed.period if confirmed.status == "follows-target" else confirmed.status
            )
        folded = {name: _folded(curve, stride) for name, curve in curves.items()}
        base = folded["in sequence"]
        ranks = {
            name: float(stats.spearmanr(base, curve).statistic)
            for name, curve in folded.items()
            if name != "in sequence"
        }
        return {
            "ways": self.toy,
            "stride": stride,
            "periods": periods,
            "ranks": ranks,
            "folded": folded,
        }


def _folded(curve: tuple[kvphase.CurvePoint, ...], stride: int) -> list[float]:
    right = np.bincount([p.residue % stride for p in curve], [p.correct for p in curve])
    n = np.bincount([p.residue % stride for p in curve], [p.n for p in curve])
    return [round(float(x), 4) for x in right / n]


def tasks(*, small: bool) -> list[Independence | Shared | Ways]:
    """Independence, shared prefills, three ways."""
    if small:
        return [Independence(10), Shared("toy:w8s4", 1)]
    return [Independence(100), *(Shared(toy, 6) for toy in (*TOYS, "toy:full")), *map(Ways, TOYS)]


def rows(results: Iterable[dict[str, Any]]) -> list[Row]:
    """One row a property, a toy, a toy's ways."""
    found = []
    for r in results:
        if "independence" in r:
            found += _independence(r)
        elif "toy" in r:
            found.append(_shared(r))
        else:
            found.append(_ways(r))
    return found


def _independence(r: dict[str, Any]) -> list[Row]:
    return [
        Row(
            "designs",
            f"residue and {name}, {r['questions']:,} questions",
            f"largest deviation {value:.1f} standard errors",
            f"<= {SIGMAS}",
            value <= SIGMAS and math.isfinite(value),
            r,
        )
        for name, value in r["independence"].items()
    ]


def _shared(r: dict[str, Any]) -> Row:
    return Row(
        "designs",
        f"{r['toy']}: one shared prefill against one a question",
        f"{r['different']} of {r['n']} answers differ, log-probabilities by {r['apart']:.0e}",
        "0 differ",
        r["different"] == 0,
        r,
    )


def _ways(r: dict[str, Any]) -> Row:
    ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in r["ranks"].items())
    return Row(
        "designs",
        f"{r['ways']}: in sequence, prefix padding, confirm",
        f"periods {', '.join(map(str, r['periods'].values()))}; rank agreement: {ranks}",
        f"all {r['stride']}",
        len(r["periods"]) == 3 and set(r["periods"].values()) == {r["stride"]},
        r,
    )
