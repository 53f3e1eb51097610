"""The small set of ``benchmarks/trust.py``: level, power, gap and designs inside their bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TRUST = Path(__file__).parents[2] / "benchmarks" / "trust.py"


@pytest.mark.slow
def test_the_small_set_stays_inside_its_bounds(tmp_path: Path) -> None:
    out = tmp_path / "trust.json"
    command = [sys.executable, str(TRUST), "--small", "--json", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert {row["section"] for row in rows} >= {"false alarms", "power", "gap", "designs"}
    assert all(row["ok"] is not False for row in rows)
    assert sum(row["ok"] is True for row in rows) >= 20
