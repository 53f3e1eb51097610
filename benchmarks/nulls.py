"""How often worlds without phase are called phase-sensitive: a table of false-alarm rates.

Run with ``python benchmarks/nulls.py [RUNS] [RECORDS]``; RUNS simulated runs of each world and
design (default 200), RECORDS records in each of four in-sequence contexts (default 120).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from kvphase.stats import measure
from kvphase.stats.simulate import NULLS, Layout, answer, insequence, prefix

if TYPE_CHECKING:
    from kvphase.types import DesignKind

KINDS: tuple[DesignKind, ...] = ("insequence", "prefix")


def layout(kind: DesignKind, rng: np.random.Generator, records: int) -> Layout:
    """A simulated run of a design."""
    return prefix(rng) if kind == "prefix" else insequence(rng, records=records)


def main(runs: int = 200, records: int = 120) -> None:
    """Print, for each world and design, how often p was small and what was said."""
    print(f"{'design':<11} {'world':<9} {'p<=.05':>7} {'p<=.005':>8} {'phase-sensitive':>16}")  # noqa: T201
    for kind in KINDS:
        for world, truth in NULLS.items():
            verdicts = []
            for seed in range(runs):
                rng = np.random.default_rng([seed, 5])
                answers = answer(layout(kind, rng, records), truth, rng)
                verdicts.append(measure(answers, kind=kind, seed=seed))
            p = np.array([1.0 if v.p_value is None else v.p_value for v in verdicts])
            alarms = np.mean([v.verdict == "phase-sensitive" for v in verdicts])
            print(  # noqa: T201
                f"{kind:<11} {world:<9} {np.mean(p <= 0.05):>7.3f} {np.mean(p <= 0.005):>8.4f} "
                f"{alarms:>16.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]))
