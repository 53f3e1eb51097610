"""``kvphase compare`` and ``kvphase gate`` on toys: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

import kvphase as api
from kvphase.catalogue import Catalogue
from kvphase.cli import main
from kvphase.runs.settings import Settings
from kvphase.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.catalogue import Language

DESIGN = {
    "kind": "insequence",
    "context_tokens": 405,
    "records": 24,
    "contexts": 40,
    "modulus": 8,
    "repeats": 8,
    "cold": 4,
    "alone": 4,
}
MARK = "DEMO: toy model, not yours"


def kvphase(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvphase", *map(str, args)],
        cwd=cwd,
        env={**os.environ, "KVPHASE_TRACEBACK": "", "KVPHASE_LANG": "en"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


def one_sentence(out: str, err: str) -> str:
    """The error as shown, and nothing else."""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("kvphase: ")
    assert out == ""
    return lines[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that asked the same, a smaller one, and one made as fits its model."""
    folder: Path = tmp_path_factory.mktemp("runs")
    frozen = Settings(frozen=(DESIGN,), early=False, confirm="never")
    small = Settings(frozen=({**DESIGN, "contexts": 8},), early=False, confirm="never")
    loose = Settings(questions=96, cold=4, confirm="never")
    Store.create(folder / "prompts.kvphase", {"command": "layout"}).close()
    for name, target, settings in (
        ("full", "toy:full", frozen),
        ("w8s4", "toy:w8s4", frozen),
        ("small", "toy:full", small),
        ("loose", "toy:full", loose),
    ):
        api.check(target, settings, out=folder / f"{name}.kvphase")
    return folder


def test_toys_are_paired_and_ranked_by_their_worst_phase(runs: Path) -> None:
    done = kvphase("compare", "w8s4.kvphase", "full.kvphase", "--figure", "c.svg", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    text = " ".join(done.stdout.split())
    assert "paired on 960 questions in common" in text
    assert "w8s4 - full: their levels differ" in text
    assert text.index("1 full") < text.index("2 w8s4 ")
    assert "w8s4 is a toy model, not yours" in text
    root = ET.fromstring((runs / "c.svg").read_text("utf-8"))  # noqa: S314 - made here
    assert MARK in "".join(root.itertext())


def test_comparison_as_json(runs: Path) -> None:
    done = kvphase("compare", "w8s4.kvphase", "full.kvphase", "--json", cwd=runs)
    found = json.loads(done.stdout)
    assert done.stderr == ""
    assert found["schema"] == "kvphase/compare@1"
    table = found["lengths"][0]
    assert [row["run"] for row in table["ranking"]] == [1, 0]
    assert table["ranking"][0]["order_wrong"] < 0.01
    # 960 questions show the level; the pattern on toys takes the 3,600 of an ordinary run.
    assert table["pairs"][0]["finding"] in ("level", "both")
    assert table["pairs"][0]["mean"]["ci"][1] < 0
    assert [run["demo"] for run in found["runs"]] == [True, True]


def test_a_verdict_file_is_compared_as_far_as_it_goes(runs: Path, tmp_path: Path) -> None:
    from kvphase.report.document import as_json, run_document

    kept = tmp_path / "w8s4.verdict.json"
    kept.write_text(as_json(run_document(api.load(runs / "w8s4.kvphase"))), "utf-8")
    done = kvphase("compare", kept, runs / "full.kvphase", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "holds counts only: no pairing by question" in text
    assert "not paired, w8s4.verdict.json holds counts" in text
    refused = kvphase("gate", kept, "--worst", "0.5", cwd=tmp_path)
    assert refused.returncode == 2
    assert "give the run file" in one_sentence(refused.stdout, refused.stderr)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("w8s4.kvphase", "--worst", "0.9"), 1, "FAIL: some phase is at most"),
        (("full.kvphase", "--worst", "0.7"), 0, "PASS: every phase is at least"),
        (("full.kvphase", "--worst", "0.7", "--max-gap", "30", "--per-length"), 0, "PASS"),
        (("small.kvphase", "--worst", "0.8"), 1, "CANNOT TELL"),
    ],
)
def test_the_gate_answers_by_exit_code(
    runs: Path, args: tuple[str, ...], code: int, words: str
) -> None:
    done = kvphase("gate", *args, cwd=runs)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(words)
    assert MARK in done.stdout
    assert ("What would settle it" in done.stdout) == (words == "CANNOT TELL")
    told = json.loads(kvphase("gate", *args, "--json", cwd=runs).stdout)
    assert told["schema"] == "kvphase/gate@1"
    assert told["pass"] == (code == 0)
    assert told["lengths"][0]["bounds"]["worst_low"] < told["lengths"][0]["seen"]["lowest"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("gate", "missing.kvphase", "--worst", "0.9"), "there is no file missing.kvphase"),
        (("gate", "loose.kvphase", "--worst", "0.9"), "--probe needle@1 or --like RUN"),
        (("gate", "full.kvphase"), "--worst 0.90, --max-gap 5, or both"),
        (("gate", "full.kvphase", "--worst", "90"), "a fraction above 0 and up to 1"),
        (("gate", "full.kvphase", "--worst", "nan"), "a fraction above 0 and up to 1"),
        (("gate", "full.kvphase", "--max-gap", "-1"), "percentage points, from 0 to 100"),
        (("gate", "junk.json", "--worst", "0.9"), "neither a run file nor a verdict.json"),
        (("gate", ".", "--worst", "0.9"), "cannot be read"),
        (("gate", "prompts.kvphase", "--worst", "0.9"), "is a run of kvphase layout"),
        (("compare", "full.kvphase"), "at least two"),
        (("compare", "full.kvphase", "./full.kvphase"), "given twice"),
        (("compare", "full.kvphase", "missing.kvphase"), "there is no file missing.kvphase"),
        (("compare", "full.kvphase", "w8s4.kvphase", "--figure", "c.pdf"), ".svg or .png"),
        (("compare", "full.kvphase", "w8s4.kvphase", "--figure", "no/c.svg"), "does not exist"),
    ],
)
def test_bad_input_is_one_sentence(
    runs: Path,
    args: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (runs / "junk.json").write_text("{}", "utf-8")
    monkeypatch.chdir(runs)
    monkeypatch.setenv("KVPHASE_LANG", "en")
    monkeypatch.setattr(sys, "argv", ["kvphase", *args])
    with pytest.raises(SystemExit) as stopped:
        main()
    done = capsys.readouterr()
    assert stopped.value.code == 2
    assert words in one_sentence(done.out, done.err)


def test_run_files_are_left_as_they_are(runs: Path) -> None:
    before = {path.name: path.read_bytes() for path in runs.glob("*.kvphase")}
    kvphase("compare", "w8s4.kvphase", "full.kvphase", "--json", cwd=runs)
    kvphase("gate", "w8s4.kvphase", "--worst", "0.9", cwd=runs)
    assert {path.name: path.read_bytes() for path in runs.glob("*.kvphase")} == before


@pytest.mark.parametrize("language", ["en", "zh"])
def test_both_languages_say_everything(
    runs: Path, tmp_path: Path, language: Language, capsys: pytest.CaptureFixture[str]
) -> None:
    from io import StringIO

    from kvphase.decide.compare import compare
    from kvphase.decide.gate import Limits, gate
    from kvphase.report.compared import show_comparison
    from kvphase.report.compared_figure import write_figure
    from kvphase.report.gated import show_gate
    from kvphase.report.lines import console
    from kvphase.runs.evidence import read_evidence

    read = [read_evidence(runs / f"{name}.kvphase") for name in ("w8s4", "full", "small")]
    stream = StringIO()
    out, say = console(stream), Catalogue(language)
    show_comparison(compare(read), out, say)
    show_gate(gate(read[0], Limits(0.9, 5.0), per_length=True), out, say)
    write_figure(compare(read[:2]), tmp_path / "c.png", language)
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    text = stream.getvalue()
    assert ("排序" in text) == (language == "zh")
    assert capsys.readouterr().out == ""


def test_contents_are_equal_exactly_where_prompts_are(runs: Path) -> None:
    with Store.read(runs / "full.kvphase") as one, Store.read(runs / "w8s4.kvphase") as two:
        stage = "needle-405"
        first, second = one.contents(stage), two.contents(stage)
        prompts = {ask.prompt for ask in one.asks(stage)}
    assert first == second
    assert len(first) == 960 + 16
    assert len(set(first)) == len(prompts) == 960
