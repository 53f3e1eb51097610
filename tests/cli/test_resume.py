"""A run that is killed at random moments ends like an undisturbed one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kvphase.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "kvphase", "check", "toy:full", "--seed", "3"]
COMMAND += ["--questions", "2400", "--cold", "12", "--json"]
KILLS = 20


def rows(path: Path) -> list[tuple[object, ...]]:
    with Store.read(path) as store:
        return store._rows(
            "SELECT ordinal, id, text, correct, logprob, margin FROM asks JOIN answers"
            " ON ask_id = id ORDER BY ordinal"
        )


def answered(path: Path) -> int:
    if not path.exists():
        return 0
    with Store.read(path) as store:
        return int(store.totals()["asked"] or 0)


def to_the_end(*options: str) -> None:
    subprocess.run([*COMMAND, *options], check=True, timeout=600, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kill -9 is a matter of POSIX systems")
def test_killed_twenty_times_the_answers_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.kvphase", tmp_path / "parts.kvphase"
    to_the_end("--out", str(whole))
    dice = random.Random(11)
    counts = []
    for kill in range(KILLS):
        before = answered(parts)
        with subprocess.Popen(
            [*COMMAND, "--out", str(parts), "--resume"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as child:
            # Every third kill comes at any time, start included; the others while it asks. None
            # comes so late that a fast machine would be done before the last.
            deadline = time.monotonic() + (dice.uniform(0.0, 4.0) if kill % 3 == 0 else 600.0)
            wanted = before + dice.randint(1, 80)
            while answered(parts) < wanted and child.poll() is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)
            child.kill()
        counts.append(answered(parts))
        assert counts[-1] >= before
    assert counts[-1] < 2676
    assert len(set(counts)) > KILLS // 2
    to_the_end("--out", str(parts), "--resume")
    assert rows(parts) == rows(whole)
    assert len(rows(whole)) == 64 + 2400 + 100 + 100 + 12
