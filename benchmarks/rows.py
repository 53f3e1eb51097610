"""One printed table and one JSON file: what `trust.py` and `speed.py` end in."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Row:
    """A figure, the bound that it must keep (if any), and the numbers behind it."""

    section: str
    what: str
    figure: str
    bound: str = ""
    ok: bool | None = None
    """None for what is reported only."""
    data: dict[str, Any] = field(default_factory=dict)


def wilson_text(hits: int, n: int) -> str:
    """A share with its 95% interval."""
    from kvphase.stats.intervals import wilson

    low, high = wilson(hits, n)
    return f"{hits}/{n} = {hits / n:.2%} [{low:.2%}, {high:.2%}]"


def machine() -> dict[str, Any]:
    """What the figures were taken on; no host name."""
    packages = ("kvphase", "numpy", "scipy", "xllamacpp", "httpx2")
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
    }


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    if file.exists():
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def finish(rows: Sequence[Row], out: Path | None, command: str, **facts: object) -> int:
    """Print the table, write the JSON; 1 if a bound was broken, else 0.

    Sections that were not run keep their rows in the file, with the command that made them.
    """
    sys.stdout.write(table(rows))
    missed = [row for row in rows if row.ok is False]
    sys.stdout.write(f"\n{len(missed)} of {sum(r.ok is not None for r in rows)} bounds missed\n")
    if out is not None:
        run = {"command": command, **facts, **machine()}
        made = [{**asdict(row), "run": run} for row in rows]
        lines = ",\n ".join(json.dumps(row, default=float) for row in [*_others(rows, out), *made])
        out.write_text(f'{{"rows": [\n {lines}\n]}}\n', encoding="utf-8")
    return int(bool(missed))


def _others(rows: Sequence[Row], out: Path) -> list[dict[str, Any]]:
    """Rows of other sections that the file holds."""
    if not out.exists():
        return []
    before: list[dict[str, Any]] = json.loads(out.read_text("utf-8"))["rows"]
    fresh = {row.section for row in rows}
    return [row for row in before if row["section"] not in fresh]


def table(rows: Sequence[Row]) -> str:
    """All rows under their sections."""
    cells = [(r.section, r.what, r.figure, r.bound, _mark(r.ok)) for r in rows]
    head = ("section", "what", "figure", "bound", "")
    widths = [max(len(line[i]) for line in [head, *cells]) for i in range(5)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [head, *cells]
    ]
    return "\n".join(lines) + "\n"


def _mark(ok: bool | None) -> str:
    return "" if ok is None else "ok" if ok else "MISSED"
