"""The command line as a user meets it: exit codes, one sentence on stderr, clean stdout."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kvphase.runs.store import Store
from kvphase.schema import VerdictFile

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--questions", "96", "--cold", "8"]


def kvphase(
    *args: str | Path, cwd: Path, env: dict[str, str] | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvphase", *map(str, args)],
        cwd=cwd,
        env={**os.environ, "KVPHASE_TRACEBACK": "", **(env or {})},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout,
        check=False,
    )


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    """The error as shown: a single line after whatever progress was printed."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("kvphase: ")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


def test_help_is_quick_and_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['kvphase', '--help']\n"
        "from kvphase.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'altair', 'pydantic', 'torch', 'starlette', 'tokenizers'}\n"
        "sys.stderr.write(','.join(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "check" in done.stdout
    assert done.stderr == ""


def test_check_measures_a_toy_and_leaves_a_run_and_a_verdict(tmp_path: Path) -> None:
    done = kvphase("check", "toy:full", *SMALL, "--out", "a.kvphase", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "DEMO: toy model, not yours" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == [
        "a.kvphase",
        "a.verdict.json",
    ]
    document = VerdictFile.model_validate_json((tmp_path / "a.verdict.json").read_text("utf-8"))
    assert (document.target, document.design, document.demo) == ("toy:full", "insequence", True)
    assert document.n == 96
    assert not document.partial
    assert sum(point.n for point in document.curve) == 96
    assert document.tokens.cached is not None
    assert document.tokens.cached > 0


def test_a_plan_asks_nothing_in_earnest_and_leaves_nothing(tmp_path: Path) -> None:
    done = kvphase("check", "toy:full", "--plan", "--json", cwd=tmp_path)
    plan = json.loads(done.stdout)
    assert [rung["rung"] for rung in plan["rungs"]] == ["flip", "needle-405", "confirm-405"]
    assert plan["rungs"][1]["contexts"] == 260
    assert list(tmp_path.iterdir()) == []
    shown = kvphase("check", "toy:full", "--plan", "--price", "1,2", "--budget", "$5", cwd=tmp_path)
    assert "$" in shown.stdout
    assert "confirm" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_a_budget_ends_a_run_with_what_there_is(tmp_path: Path) -> None:
    done = kvphase(
        "check", "toy:full", "--rungs", "405", "--questions", "480", "--budget", "150q",
        "--label", "kv=q8_0", "--json", "--out", "a.kvphase", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = VerdictFile.model_validate_json(done.stdout)
    assert document.partial
    assert document.labels == {"kv": "q8_0"}
    assert "budget of 150 questions is used up" in done.stderr
    assert "--resume --budget 15m --out a.kvphase" in done.stderr
    with Store.read(tmp_path / "a.kvphase") as store:
        assert int(store.totals()["asked"] or 0) <= 150


def test_json_puts_the_document_and_nothing_else_on_stdout(tmp_path: Path) -> None:
    done = kvphase("check", "toy:full", *SMALL, "--json", "--out", "a.kvphase", cwd=tmp_path)
    assert json.loads(done.stdout)["schema"] == "kvphase/verdict@1"
    again = kvphase("check", "--resume", "--json", "--out", "a.kvphase", cwd=tmp_path)
    assert again.returncode == 0
    assert json.loads(again.stdout) == json.loads(done.stdout)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["check", "toy:none"], 2, "w8s4"),
        (["check", "ftp://x"], 2, "http://"),
        (["check", "http://127.0.0.1:9"], 3, "refused|reached"),
        (["check", "--context", "300"], 2, "need a context of at least"),
        (["check", "--context", "99999"], 2, "the largest that would is"),
        (["check", "--records", "20"], 2, "use a multiple of 8"),
        (["check", "--records", "9600"], 2, "does not fit into the model"),
        (["check", "--chat"], 2, "template"),
        (["check", "--resume"], 2, "--out FILE.kvphase"),
        (["check", "--out", "no/such/folder/a.kvphase"], 2, "does not exist"),
        (["check", "--out", "."], 2, "is a folder"),
        (["check", "--out", "text.csv/a.kvphase"], 2, "does not exist"),
        (["check", "--out", "a" * 300 + ".kvphase"], 2, "cannot be used"),
        (["check", "--out", "text.kvphase", "--resume"], 2, "not a kvphase run file"),
        (["check", "--out", "text.kvphase"], 2, "exists already"),
        (["check", "--budget", "soon"], 2, "is no budget"),
        (["check", "--budget", "$2"], 2, "--price"),
        (["check", "--price", "cheap"], 2, "is no price"),
        (["check", "--label", "kv"], 2, "NAME=VALUE"),
        (["check", "--probe", "needle@9"], 2, "needle@1"),
        (["check", "--like", "text.kvphase"], 2, "not a kvphase run file"),
        (["check", "--like", "no.kvphase"], 2, "there is no run file"),
        (["check", "--like", "a", "--probe", "needle@1"], 2, "one of them"),
        (["check", "--rungs", "flip,some"], 2, "is no rung"),
        (["check", "--rungs", "flip,128k"], 2, "the largest that would is"),
        (["check", "https://api.example.com"], 2, "--budget 3Mtok"),
        (["check", "https://api.example.com", "--budget", "5m"], 2, "--budget 3Mtok"),
        (["info", "http://127.0.0.1:9"], 3, "refused|reached"),
        (["analyze", "missing.csv"], 2, "missing.csv"),
        (["analyze", "text.csv"], 2, "column"),
        (["analyze", "one.csv"], 2, "single|two"),
    ],
)
def test_bad_input_gets_one_sentence_and_an_exit_code(
    tmp_path: Path, args: list[str], code: int, says: str
) -> None:
    (tmp_path / "text.kvphase").write_text("this is no database, though long enough" * 40)
    (tmp_path / "text.csv").write_text("name,colour\nx,red\ny,blue\n")
    (tmp_path / "one.csv").write_text("residue,n,correct\n3,10,5\n")
    done = kvphase(*args, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert re.search(says, one_sentence(done)), done.stderr
    assert done.stdout == ""
    assert str(tmp_path) not in done.stderr


@pytest.mark.parametrize(
    "address",
    [
        "http://user:s3cret@127.0.0.1:99999",
        "http://user:s3cret@127.0.0.1:abc",
        "http://user:s3cret@",
        "user:s3cret@127.0.0.1:80",
        "https:/user:s3cret@h",
    ],
)
def test_what_may_be_a_password_is_never_shown(tmp_path: Path, address: str) -> None:
    done = kvphase("info", address, cwd=tmp_path)
    assert done.returncode == 2
    assert "s3cret" not in done.stderr + done.stdout
    one_sentence(done)


def test_a_finished_run_is_shown_again_but_not_as_another(tmp_path: Path) -> None:
    kvphase("check", "toy:full", *SMALL, "--out", "a.kvphase", cwd=tmp_path)
    resume = ["--resume", "--out", "a.kvphase"]
    assert kvphase("check", *resume, cwd=tmp_path).returncode == 0
    for other in (["toy:w8s4"], ["--seed", "3"], ["toy:nonsense"], ["http://127.0.0.1:1"]):
        done = kvphase("check", *other, *resume, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "was made with" in one_sentence(done)


def test_a_resumed_run_must_be_the_same_run(tmp_path: Path) -> None:
    kvphase("check", "toy:full", *SMALL, "--out", "a.kvphase", cwd=tmp_path)
    with Store.resume(tmp_path / "a.kvphase") as store:
        store.note(state="asking")
    other = kvphase("check", "toy:w8s4", "--resume", "--out", "a.kvphase", cwd=tmp_path)
    assert other.returncode == 2
    assert "was made with toy:full" in one_sentence(other)
    seed = kvphase("check", "--seed", "5", "--resume", "--out", "a.kvphase", cwd=tmp_path)
    assert seed.returncode == 2
    assert "seed = 0, not 5" in one_sentence(seed)


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to a child process on Windows")
def test_an_interrupt_ends_with_a_partial_report_and_resumes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvphase", "check", "toy:full", "--questions", "2000"]
    child = subprocess.Popen(
        [*command, "--out", "a.kvphase"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell inherit an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    _wait_for_answers(tmp_path / "a.kvphase", 30)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, err
    assert "(partial run)" in out
    assert "interrupted" in err
    assert "--resume" in err
    assert "Traceback" not in err
    document = VerdictFile.model_validate_json((tmp_path / "a.verdict.json").read_text("utf-8"))
    assert document.partial
    assert 0 < document.n < 2000


def _wait_for_answers(path: Path, number: int) -> None:
    """Block until the run file holds ``number`` answers."""
    for _ in range(4800):  # a busy machine takes its time to start
        time.sleep(0.05)
        if path.exists():
            with Store.read(path) as store:
                if int(store.totals()["asked"] or 0) >= number:
                    return
    raise AssertionError("the run did not start")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("encoding", ["gbk", "ascii", "utf-8"])
def test_any_console_encoding_will_do(tmp_path: Path, encoding: str, language: str) -> None:
    env = {"PYTHONIOENCODING": encoding, "NO_COLOR": "1", "KVPHASE_LANG": language}
    done = subprocess.run(
        [sys.executable, "-m", "kvphase", "check", "toy:full", *SMALL, "--out", "a.kvphase"],
        cwd=tmp_path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        encoding=encoding,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    spoken = language == "zh" and encoding != "ascii"
    assert ("余数 mod 8" if spoken else "target mod 8") in done.stdout
    assert ("演示：玩具模型" if spoken else "DEMO: toy model") in done.stdout  # noqa: RUF001
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
