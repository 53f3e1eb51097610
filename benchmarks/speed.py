"""What does a curve cost, what does our own code add, and what does it start with?

    python benchmarks/speed.py [--small] [--lengths N ...] [--harness LM_EVAL] [--json FILE.json]

The server is llama.cpp's with SmolLM2-135M, both from the package registry, on one thread.
``--harness`` names the program ``lm_eval`` of an environment that holds lm-evaluation-harness with
``lm_eval[api]``. Prints one table and writes one JSON file; ends with 1 if a bound was missed.
``--small`` leaves the server out, for continuous integration: ratios and bounds, no times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import speed_cost
import speed_early
import speed_loop
import speed_peers
import speed_start
from rows import Row, finish

RESULTS = Path(__file__).with_name("results")
SECTIONS = ("server", "loop", "early", "start")


def of_server(lengths: list[int], harness: Path | None) -> list[Row]:
    """Costs at each length, then the peers at the shortest."""
    with (
        tempfile.TemporaryDirectory() as name,
        speed_cost.serving(max(lengths) + 256) as server,
    ):
        folder, found = Path(name), []
        for length in lengths:
            found.append(speed_cost.measured(server, length, folder))
            sys.stderr.write(f"{length} tokens: {found[-1]['wall_s']:.0f} s\n")
        shortest = folder / f"{lengths[0]}.kvphase"
        return [*speed_cost.rows(found), *speed_peers.rows(server, shortest, harness)]


def main() -> None:
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=None)
    parser.add_argument("--lengths", nargs="+", type=int, default=list(speed_cost.LENGTHS))
    parser.add_argument("--harness", type=Path, default=None)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    sections = options.sections or (SECTIONS[1:] if options.small else SECTIONS)
    out = options.json or (None if options.small else RESULTS / "speed.json")

    started, rows = time.perf_counter(), []
    if "server" in sections:
        rows += of_server(options.lengths, options.harness)
    if "loop" in sections:
        rows += speed_loop.rows(speed_loop.figures(small=options.small))
    if "early" in sections:
        rows += speed_early.rows(small=options.small)
    if "start" in sections:
        rows += speed_start.rows(small=options.small)
    # Names of files, not where they are on this machine.
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    command = " ".join(["python benchmarks/speed.py", *words])
    code = finish(rows, out, command, seconds=round(time.perf_counter() - started))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
