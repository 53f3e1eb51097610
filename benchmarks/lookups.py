"""The lab's lookups asked of any target, at a length and difficulty of one's choice.

    python benchmarks/lookups.py TARGET [--records 72] [--context 800] [--contexts 72]

``lookup@1`` fixes 672 tokens, which is too short where a runtime does not tell the local window of
its model. The design is otherwise that one: records of two tokens, eight residues. Prints the
verdict as JSON: accuracies as fractions, gaps in percentage points.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import kvphase
from kvphase.runs.settings import PROBES


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--records", type=int, default=72)
    parser.add_argument("--context", type=int, default=800)
    parser.add_argument("--contexts", type=int, default=72)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--early", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    design = {
        **PROBES["lookup@1"][0],
        "records": args.records,
        "context_tokens": args.context,
        "contexts": args.contexts,
    }
    with tempfile.TemporaryDirectory() as folder:
        run = kvphase.check(
            args.target,
            kvphase.Settings(frozen=(design,), early=args.early),
            out=args.out or Path(folder) / "run.kvphase",
            budget=kvphase.Budget(),
        )
    found, moved = run.verdict, run.confirmation and run.confirmation.confirmation
    figures = {
        "verdict": found.verdict,
        "period": found.period,
        "p_value": found.p_value,
        "mean": round(found.mean, 4),
        "gap_pp": found.gap.crossfit_pp,
        "gap_ci95": found.gap.ci95,
        "curve": [round(point.accuracy, 3) for point in found.curve],
        "answers": found.n,
        "audit_flips": [
            found.audit.repeat_flips,
            found.audit.cold_flips,
            found.audit.alone_flips,
        ],
        "confirmed": moved.status if moved else None,
        "totals": run.totals,
    }
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
