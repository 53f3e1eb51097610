"""Can the verdict be trusted? False alarms, power, gaps and designs, against their bounds.

    python benchmarks/trust.py [--small] [--sections S ...] [--json FILE.json]

Two processes, one thread each. Prints one table and writes one JSON file; ends with 1 if a bound
was missed. ``--small`` is a minute's worth of each section, for continuous integration.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import trust_design
import trust_gap
import trust_level
import trust_power
from rows import finish
from threadpoolctl import threadpool_limits

SECTIONS = {
    "level": trust_level,
    "power": trust_power,
    "gap": trust_gap,
    "designs": trust_design,
}
RESULTS = Path(__file__).with_name("results")


def timed(named: tuple[str, int, Any]) -> tuple[str, int, Any, float]:
    """Run one task; the processor seconds it took are kept."""
    section, number, task = named
    started = time.process_time()
    return section, number, task.run(), time.process_time() - started


def main() -> None:
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    out = options.json or (None if options.small else RESULTS / "trust.json")

    started = time.perf_counter()
    named = [
        (section, number, task)
        for section in options.sections
        for number, task in enumerate(SECTIONS[section].tasks(small=options.small))
    ]
    named.sort(key=lambda task: -task[2].weight)
    context = multiprocessing.get_context("spawn")
    # Two processes that each ran two threads would only wait for each other.
    with context.Pool(options.processes, threadpool_limits, (1,)) as pool:
        done = []
        for result in pool.imap_unordered(timed, named):
            done.append(result)
            sys.stderr.write(f"\r{len(done)} of {len(named)} tasks")
        sys.stderr.write("\n")
    seconds = time.perf_counter() - started
    processor = {
        section: round(sum(d[3] for d in done if d[0] == section), 1)
        for section in options.sections
    }

    rows = []
    for section in options.sections:
        mine = sorted((d[1:3] for d in done if d[0] == section), key=lambda d: d[0])
        rows += SECTIONS[section].rows([result for _, result in mine])
    # Names of files, not where they are on this machine.
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    command = " ".join(["python benchmarks/trust.py", *words])
    code = finish(rows, out, command, seconds=round(seconds), processor_seconds=processor)
    used = ", ".join(f"{name} {value:.0f}" for name, value in processor.items())
    sys.stdout.write(f"{seconds:.0f} s; processor seconds: {used}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
