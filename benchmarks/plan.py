"""The plan against what then happened, on a toy served at a throttled speed.

    python benchmarks/plan.py [--toy toy:full] [--throttle 300] [--budget 5m] [--out FILE.json]

Prints when the first verdict (the flip) was there, the planned and the actual seconds of each rung,
and the seconds of the whole run against its budget.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import kvphase
from kvphase.runs.budget import Budget
from kvphase.runs.check import run_sync
from kvphase.runs.plan import plan_run
from kvphase.serve import serving

if TYPE_CHECKING:
    from kvphase.runs.execute import Event
    from kvphase.runs.stages import Result, Skipped, Stage
    from kvphase.types import About


@dataclass
class Clock:
    """Seconds at which each part ended."""

    started: float = field(default_factory=time.perf_counter)
    ended: dict[str, float] = field(default_factory=dict)

    def opened(self, about: About, path: Path) -> None:
        """Nothing."""

    def times(self) -> None:
        """Nothing."""

    def begins(self, stage: Stage) -> None:
        """Nothing."""

    def answered(self, event: Event) -> None:
        """Nothing."""

    def skips(self, skipped: Skipped) -> None:
        """Nothing."""

    def ends(self, result: Result) -> None:
        """Note the time."""
        self.ended[result.stage.name] = round(time.perf_counter() - self.started, 1)


def main() -> None:
    """Plan, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", default="toy:full")
    parser.add_argument("--throttle", type=float, default=300.0)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    budget = Budget.parse([options.budget])
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(options.toy, throttle=options.throttle) as address,
    ):
        plan = run_sync(plan_run(address, kvphase.Settings(), budget))
        clock = Clock()
        out = Path(folder) / "a.kvphase"
        run = kvphase.check(address, out=out, budget=budget, watcher=clock)
        seconds = time.perf_counter() - clock.started
    planned = {rung.name: round(rung.cost.seconds, 1) for rung in plan.rungs if not rung.skipped}
    actual = {r.stage.name: round(float(r.totals["seconds"] or 0), 1) for r in run.results}
    always = [rung.name for rung in plan.rungs if not rung.skipped and not rung.only_if]
    ratio = sum(actual[name] for name in always if name in actual) / plan.total.seconds
    found = {
        "toy": options.toy,
        "throttle": options.throttle,
        "budget_seconds": budget.seconds,
        "flip_verdict_after": clock.ended.get("flip"),
        "planned_seconds": planned,
        "asking_seconds": actual,
        "asking_over_plan": round(ratio, 3),
        "whole_run_seconds": round(seconds, 1),
        "verdict": run.verdict.verdict,
        "partial": run.partial,
    }
    text = json.dumps(found, indent=1)
    sys.stdout.write(f"{text}\n")
    if options.out is not None:
        options.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
