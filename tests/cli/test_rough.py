"""What people and servers do to a run, and what must come of it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import kvphase
from kvphase.errors import StoreError, UsageError
from kvphase.runs.budget import Budget
from kvphase.runs.check import load
from kvphase.runs.store import Store
from kvphase.types import Reply

if TYPE_CHECKING:
    from pathlib import Path

SMALL = kvphase.Settings(rungs=("405",), questions=48, cold=0, confirm="never")


def command(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "kvphase", *args],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        timeout=240,
        check=False,
    )


def test_a_log_left_by_a_moved_run_is_never_replayed_into_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"
    with Store.create(path, {"seed": 1}) as store:
        store.note(state="asking")
        shutil.copy(path.with_name("a.kvphase-wal"), tmp_path / "kept")
    path.rename(tmp_path / "moved.kvphase")
    shutil.move(tmp_path / "kept", path.with_name("a.kvphase-wal"))
    with pytest.raises(StoreError, match="was left by a run that was killed"):
        Store.create(path, {"seed": 2})


@pytest.mark.parametrize("budget", [Budget(tokens=10), Budget(seconds=1e-6)])
def test_a_budget_too_small_for_anything_says_so_and_leaves_nothing(
    tmp_path: Path, budget: Budget
) -> None:
    with pytest.raises(UsageError, match="larger one"):
        kvphase.check("toy:full", SMALL, out=tmp_path / "a.kvphase", budget=budget)
    assert not (tmp_path / "a.kvphase").exists()


def test_refused_settings_leave_the_name_free(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"
    bad = kvphase.Settings(rungs=("405",), modulus=7)
    with pytest.raises(UsageError):
        kvphase.check("toy:full", bad, out=path)
    assert kvphase.check("toy:full", SMALL, out=path).verdict.n == 48


@pytest.mark.parametrize(
    ("key", "value"),
    [("stages", '"x"'), ("stages", '[{"name": 1}]'), ("state", "{{"), ("settings", "null")],
)
def test_a_manifest_that_makes_no_sense_is_a_damaged_file(
    tmp_path: Path, key: str, value: str
) -> None:
    path = tmp_path / "a.kvphase"
    kvphase.check("toy:full", SMALL, out=path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE run SET value = ? WHERE key = ?", (value, key))
    db.close()
    if key != "settings":
        with pytest.raises(StoreError, match="damaged"):
            load(path)
    with pytest.raises(StoreError, match="damaged"):
        kvphase.check(out=path, resume=True)


@pytest.mark.parametrize("encoding", ["gbk", "ascii"])
def test_json_is_json_on_any_console(tmp_path: Path, encoding: str) -> None:
    options = ["--rungs", "405", "--questions", "24", "--cold", "0", "--confirm", "never"]
    done = command(
        "check", "toy:full", *options, "--label", "a=Ä😀",
        "--json", "--out", "a.kvphase", cwd=tmp_path, PYTHONIOENCODING=encoding,
    )  # fmt: skip
    if done.returncode:  # this system cannot even pass such an argument
        pytest.fail(done.stderr.decode(encoding, "replace"))
    assert json.loads(done.stdout.decode("ascii"))["labels"] == {"a": "Ä😀"}


def test_half_a_surrogate_in_an_answer_is_kept_as_a_replacement(tmp_path: Path) -> None:
    path = tmp_path / "a.kvphase"
    kvphase.check("toy:full", SMALL, out=path)
    with Store.resume(path) as store:
        ask = store.asks()[0]
        store._db.execute("DELETE FROM answers WHERE ask_id = ?", (ask.id,))
        store.put(ask, Reply("\ud83d x"))
        assert store.answers([ask]).text.tolist() == ["? x"]


def test_options_that_contradict_a_frozen_design_are_refused(tmp_path: Path) -> None:
    for option in (["--records", "8"], ["--modulus", "4"], ["--seed", "9"], ["--rungs", "flip"]):
        done = command("check", "toy:full", "--probe", "needle@1", *option, cwd=tmp_path)
        assert done.returncode == 2
        assert f"leave {option[0]} out" in done.stderr.decode()


def test_runs_whose_names_end_alike_keep_their_own_verdicts(tmp_path: Path) -> None:
    options = ["--rungs", "405", "--questions", "24", "--cold", "0", "--confirm", "never"]
    for name in ("m.v1", "m.v2"):
        done = command("check", "toy:full", *options, "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert names == {"m.v1", "m.v2", "m.v1.verdict.json", "m.v2.verdict.json"}


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    done = command("info", "http://127.0.0.1:9", cwd=tmp_path, KVPHASE_API_KEY="sk-s\u00e9cret")
    assert done.returncode == 2
    assert b"KVPHASE_API_KEY" in done.stderr
    assert "s\u00e9cret".encode() not in done.stderr
