"""Looking early against asking everything: the same verdicts, at how many questions?

    python benchmarks/early.py [--seeds 100] [--toys toy:w8s4 toy:full] [--out FILE.json]

For each seed both toys are asked their whole default screen once; the run that looks early is then
answered from the same answers (a toy's answers depend on the prompt alone) and asks whatever the
looks leave. A run that was stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvphase.probes.needle import NeedlePlan, needle, plan_needle
from kvphase.runs.execute import execute
from kvphase.runs.settings import Settings, choose
from kvphase.runs.store import Store
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey
from kvphase.types import About, Arm, Ask, Limits, Reply, Runtime, Template, Verdict

TOYS = ("toy:w8s4", "toy:full")


@dataclass
class Recorded:
    """Answers each prompt once with the toy, later from memory."""

    toy: Runtime
    replies: dict[tuple[int, ...], Reply] = field(default_factory=dict)
    questions: int = 0

    @property
    def about(self) -> About:
        """The toy's."""
        return self.toy.about

    @property
    def limits(self) -> Limits:
        """The toy's."""
        return self.toy.limits

    @property
    def traffic(self) -> int | None:
        """The toy's."""
        return self.toy.traffic

    async def tokenize(self, texts: list[str], *, special: bool = False) -> list[list[int]]:
        """The toy's."""
        return await self.toy.tokenize(texts, special=special)

    async def template(self) -> Template:
        """The toy's."""
        return await self.toy.template()

    async def complete(self, ask: Ask) -> Reply:
        """From memory, or by the toy; screen questions are counted."""
        self.questions += ask.arm is Arm.SCREEN
        if ask.prompt not in self.replies:
            self.replies[ask.prompt] = await self.toy.complete(ask)
        return self.replies[ask.prompt]


async def one(target: str, seed: int) -> dict[str, object]:
    """Both ways for one seed."""
    async with open_runtime(target) as toy:
        runtime = Recorded(toy)
        vocab = await survey(toy.tokenize)
        design = replace(choose(Settings(), toy.about, toy.limits), cold=0, repeats=0, alone=0)
        whole = plan_needle(vocab, toy.limits, design, seed)
        found: dict[str, object] = {"target": target, "seed": seed}
        for name, plan in (("whole", whole), ("early", replace(whole, early=True))):
            before = runtime.questions
            verdict = await asked(plan, runtime)
            found[name] = {
                "verdict": verdict.verdict,
                "period": verdict.period,
                "p": verdict.p_value,
                "questions": runtime.questions - before,
                "mean": round(verdict.mean, 4),
                "gap_pp": verdict.gap.crossfit_pp,
                "mde_pp": verdict.mde_pp,
            }
        return found


async def asked(plan: NeedlePlan, runtime: Runtime) -> Verdict:
    """The verdict of one run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.create(Path(folder) / "a.kvphase", {}) as store,
    ):
        return await execute(needle(plan), runtime, store)


def main() -> None:
    """Run what is missing and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--toys", nargs="+", default=TOYS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/early.json"))
    options = parser.parse_args()
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    done = {(row["target"], row["seed"]) for row in rows}
    for seed in range(1, options.seeds + 1):
        for target in options.toys:
            if (target, seed) not in done:
                rows.append(asyncio.run(one(target, seed)))
                lines = ",\n ".join(json.dumps(row) for row in rows)
                options.out.write_text(f"[{lines}]\n")
    for target in options.toys:
        mine = [row for row in rows if row["target"] == target]
        same = sum(
            row["whole"]["verdict"] == row["early"]["verdict"]
            and row["whole"]["period"] == row["early"]["period"]
            for row in mine
        )
        asks = [sum(row[way]["questions"] for row in mine) for way in ("whole", "early")]
        names = {
            way: {
                v: sum(r[way]["verdict"] == v for r in mine)
                for v in {r[way]["verdict"] for r in mine}
            }
            for way in ("whole", "early")
        }
        sys.stdout.write(
            f"{target}: {same} of {len(mine)} seeds the same verdict and period; questions "
            f"{asks[0]:,} whole, {asks[1]:,} early ({100 * asks[1] / asks[0]:.0f}%); "
            f"verdicts {names}\n"
        )


if __name__ == "__main__":
    main()
