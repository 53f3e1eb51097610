"""Verdicts of the shipped toys over seeds 1 to 20: ``benchmarks/seeds.py [toy:NAME ...]``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import kvphase

SEEDS = range(1, 21)


def line(run: kvphase.Run) -> str:
    """What was found, in one line."""
    found, shifted = run.verdict, run.confirmation
    confirmed = ""
    if shifted is not None and shifted.confirmation is not None:
        what = shifted.confirmation
        tail = "none" if what.tail is None else what.tail.status
        target = what.factors[0]
        confirmed = f", {what.status} (p {target.p_value:.4f}, {target.gap_pp:.1f}), tail {tail}"
    return (
        f"{found.verdict:15} period {found.period!s:4} p {found.p_value:.4f} cross-fitted gap "
        f"{found.gap.crossfit_pp:5.1f} mean {found.mean:.3f} detectable {found.mde_pp:.1f}"
        f"{confirmed}; {run.totals['asked']:,} asks"
    )


def main() -> None:
    """Print one line a run: verdict, period, p value, gap, mean, seconds."""
    for target in sys.argv[1:] or ["toy:w8s4", "toy:full"]:
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                run = kvphase.check(
                    target, kvphase.Settings(seed=seed), out=Path(folder) / "a.kvphase"
                )
                seconds = time.perf_counter() - started
            sys.stdout.write(f"{target} seed {seed:2}: {line(run)} {seconds:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
