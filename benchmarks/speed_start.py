"""What every command costs before it does anything: start, small files, a large report, disk."""

from __future__ import annotations

import importlib.metadata
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from rows import Row

import kvphase

REPEATS = 5
LARGE = 100_000
MOST_SECONDS, MOST_MB = 5.0, 500.0
INSTALL_MB = 400.0
KVPHASE = (sys.executable, "-m", "kvphase")


def timed(*arguments: str, repeats: int = 1) -> dict[str, float]:
    """Least wall and processor seconds of a command, and the peak of its memory."""
    best: dict[str, float] = {}
    for _ in range(repeats):
        started = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603
            [*KVPHASE, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        said = process.stderr.read() if process.stderr else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"kvphase {' '.join(arguments)}: {said.decode()}")
        once = {
            "wall_s": time.perf_counter() - started,
            "processor_s": usage.ru_utime + usage.ru_stime,
            "peak_mb": usage.ru_maxrss / 1024,
        }
        best = {name: min(value, best.get(name, value)) for name, value in once.items()}
    return best


def large_run(path: Path, answers: int, target: str) -> int:
    """A finished run of so many answers: a toy's, its contexts repeated under new numbers."""
    settings = kvphase.Settings(
        questions=2_400, cold=0, early=False, confirm="never", rungs=("405",)
    )
    kvphase.check(target, settings, out=path, budget=kvphase.Budget())
    with closing(sqlite3.connect(path)) as base, base:
        asks, contexts, items = base.execute(
            "SELECT MAX(ordinal) + 1, MAX(context) + 1, MAX(item) + 1 FROM asks"
        ).fetchone()
        screen = base.execute("SELECT COUNT(*) FROM asks WHERE arm = 'screen'").fetchone()[0]
        for copy in range(1, -(-answers // screen)):
            _copy(base, "asks", f"-{copy}", copy * asks, copy * contexts, copy * items)
            _copy(base, "answers", f"-{copy}", 0, 0, 0)
    return int(screen) * -(-answers // screen)


def _copy(
    base: sqlite3.Connection, table: str, suffix: str, ordinal: int, context: int, item: int
) -> None:
    """The first run's rows of a table once more, under new numbers."""
    changed = {
        "ordinal": f"ordinal + {ordinal}",
        "id": f"id || '{suffix}'",
        "ask_id": f"ask_id || '{suffix}'",
        "context": f"context + {context}",
        "item": f"item + {item}",
    }
    columns = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(name, name) for name in columns)
    key = "id" if table == "asks" else "ask_id"
    base.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) "  # noqa: S608 - our own names
        f"SELECT {values} FROM {table} WHERE {key} NOT LIKE '%-%'"
    )


def installed_mb() -> tuple[float, list[tuple[str, float]]]:
    """Bytes of the base install: kvphase and everything that it requires, without extras."""
    sizes: dict[str, float] = {}
    wanted = ["kvphase"]
    while wanted:
        name = wanted.pop()
        if name in sizes:
            continue
        try:
            one = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for other systems or versions of Python
        files = [Path(str(file.locate())) for file in one.files or ()]
        sizes[name] = sum(f.stat().st_size for f in files if f.is_file()) / 1e6
        for line in one.requires or ():
            if "extra ==" not in line:
                wanted.append(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower())
    sizes["kvphase"] = _ours()
    return sum(sizes.values()), sorted(sizes.items(), key=lambda pair: -pair[1])


def _ours() -> float:
    folder = Path(str(kvphase.__file__)).parent
    files = [f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    return sum(f.stat().st_size for f in files) / 1e6


def rows(*, small: bool) -> list[Row]:
    """Help, analyze, report, disk."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_commands(Path(folder)), *_report(Path(folder), small=small), _install()]


def _commands(folder: Path) -> list[Row]:
    dice = random.Random(2)  # noqa: S311
    lines = [f"{8 * i + i % 8},{int(dice.random() < 0.8)}" for i in range(400)]
    small_file = folder / "small.csv"
    small_file.write_text("position,correct\n" + "\n".join(lines) + "\n", encoding="utf-8")
    made = []
    for what, arguments in (
        ("kvphase --help", ("--help",)),
        ("kvphase analyze, 400 answers", ("analyze", str(small_file))),
    ):
        r = timed(*arguments, repeats=REPEATS)
        figure = f"{r['wall_s']:.2f} s, processor {r['processor_s']:.2f} s, {r['peak_mb']:.0f} MB"
        made.append(Row("start", what, figure, data=dict(r)))
    return made


def _report(folder: Path, *, small: bool) -> list[Row]:
    made = []
    for target in ("toy:full",) if small else ("toy:full", "toy:w8s4"):
        path = folder / f"{target[4:]}.kvphase"
        n = large_run(path, 5_000 if small else LARGE, target)
        r: dict[str, Any] = timed("report", str(path), "--out", str(folder / "page.html"))
        made.append(
            Row(
                "start",
                f"kvphase report, {n:,} answers of {target}",
                f"{r['wall_s']:.1f} s, processor {r['processor_s']:.1f} s, {r['peak_mb']:.0f} MB",
                f"processor < {MOST_SECONDS:.0f} s, < {MOST_MB:.0f} MB",
                r["processor_s"] < MOST_SECONDS and r["peak_mb"] < MOST_MB,
                {"answers": n, **r},
            )
        )
    return made


def _install() -> Row:
    total, parts = installed_mb()
    largest = ", ".join(f"{name} {size:.0f}" for name, size in parts[:5])
    return Row(
        "start",
        "base install",
        f"{total:.0f} MB ({largest})",
        f"< {INSTALL_MB:.0f} MB",
        total < INSTALL_MB,
        {"parts_mb": dict(parts)},
    )
