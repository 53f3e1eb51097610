# ruff: noqa: RUF001 - Chinese punctuation
"""``kvphase report`` on a real run file: what it writes, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kvphase
from kvphase.errors import UsageError
from kvphase.report.files import Wanted, write_report
from kvphase.runs.store import Store


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "toy.kvphase"
    kvphase.check("toy:w8s4", kvphase.Settings(questions=240), out=path)
    return path


@pytest.fixture
def run(measured: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(measured, tmp_path / "toy.kvphase"))


def kvphase_report(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvphase", "report", *args],
        cwd=cwd,
        env={**os.environ, "KVPHASE_LANG": "en", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_page_card_and_figures(run: Path) -> None:
    before = run.read_bytes()
    arguments = ("toy.kvphase", "--card", "card.png", "--figures", "figures", "--json")
    done = kvphase_report(*arguments, "--lang", "zh", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert written["schema"] == "kvphase/report@1"
    assert (written["page"], written["card"], written["language"]) == (
        *("toy.html", "card.png", "zh"),
    )
    page = (run.parent / "toy.html").read_text("utf-8")
    assert "演示：玩具模型" in page
    assert written["digest"] in page
    assert (run.parent / "card.png").read_bytes().startswith(b"\x89PNG")
    figures = {Path(path).name for path in written["figures"]}
    assert {"curve.png", "curve.svg", "depth.png", "lengths.svg", "published.png"} <= figures
    for path in written["figures"]:
        assert (run.parent / path).stat().st_size > 1000
    assert run.read_bytes() == before
    assert {path.suffix for path in run.parent.iterdir()} == {".kvphase", ".html", ".png", ""}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("none.kvphase",), "there is no run file none.kvphase"),
        (("toy.kvphase", "--out", "toy.kvphase"), "toy.kvphase must end in .html."),
        (("toy.kvphase", "--card", "card.jpg"), "card.jpg must end in .png."),
        (("toy.kvphase", "--out", "none/a.html"), "The folder of none/a.html does not exist."),
        (("toy.kvphase", "--figures", "toy.kvphase"), "toy.kvphase is a file; name a folder"),
        (("broken.kvphase",), "not a kvphase run file"),
    ],
)
def test_bad_input_is_one_sentence(run: Path, args: tuple[str, ...], says: str) -> None:
    (run.parent / "broken.kvphase").write_text("not a run")
    done = kvphase_report(*args, cwd=run.parent)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says.lower() in done.stderr.lower()
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_run_is_never_overwritten(run: Path) -> None:
    named_so = Path(shutil.copy(run, run.with_name("run.html")))
    before = named_so.read_bytes()
    with pytest.raises(UsageError, match="the run file itself"):
        write_report(named_so, Wanted(page=named_so), "en")
    folder = run.with_name("a.html")
    folder.mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        write_report(run, Wanted(page=folder), "en")
    assert named_so.read_bytes() == before


def test_a_run_without_answers_has_no_page(run: Path) -> None:
    with Store.read(run) as store:
        manifest = store.manifest
    empty = run.with_name("empty.kvphase")
    manifest.pop("schema")
    manifest["stages"] = []
    Store.create(empty, manifest).close()
    with pytest.raises(UsageError):
        write_report(empty, Wanted(), "en")
    assert not empty.with_suffix(".html").exists()
