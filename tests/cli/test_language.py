# ruff: noqa: RUF001 - Chinese punctuation
"""Both languages on consoles as they are, and a wrong command line in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

if TYPE_CHECKING:
    from pathlib import Path

COUNTS = "residue,n,correct\n0,60,30\n1,60,45\n2,60,29\n3,60,44\n"
ESCAPES = "\x1b]0;owned\x07\x1b[31m"


def kvphase(
    *args: str, cwd: Path, encoding: str = "utf-8", **env: str
) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONIOENCODING": encoding, "LANG": "C.UTF-8", "KVPHASE_TRACEBACK": "", **env}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "KVPHASE_"))}
    return subprocess.run(
        [sys.executable, "-m", "kvphase", *args],
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        encoding=encoding,
        timeout=240,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counts.csv").write_text(COUNTS)
    return tmp_path


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "ascii"])
def test_analyze_on_any_console(folder: Path, language: str, encoding: str) -> None:
    done = kvphase("analyze", "counts.csv", "--lang", language, cwd=folder, encoding=encoding)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\\u" not in done.stdout
    lines = done.stdout.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)
    spoken = language == "zh" and encoding != "ascii"
    assert ("余数" in done.stdout) == spoken
    assert ("Residue" in done.stdout) != spoken


def test_the_language_comes_from_the_locale_and_the_variable(folder: Path) -> None:
    chinese = kvphase("info", "toy:full", cwd=folder, LANG="zh_CN.UTF-8")
    assert "演示：玩具模型，不是你的模型" in chinese.stdout
    english = kvphase("info", "toy:full", cwd=folder, LANG="zh_CN.UTF-8", KVPHASE_LANG="en")
    assert "DEMO: toy model, not yours" in english.stdout


@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        ("utf-8", "kvphase: 没有 none.csv 这个文件。\n"),
        ("gbk", "kvphase: 没有 none.csv 这个文件。\n"),
        ("ascii", "kvphase: There is no file none.csv.\n"),
    ],
)
def test_errors_in_the_chosen_language(folder: Path, encoding: str, says: str) -> None:
    done = kvphase("analyze", "none.csv", "--lang", "zh", cwd=folder, encoding=encoding)
    assert (done.returncode, done.stderr) == (2, says)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nonsense"], "No such command 'nonsense'; see kvphase --help"),
        (["analyze"], "Missing argument 'file'; see kvphase analyze --help"),
        (["analyze", "x", "--modulus", "1"], "greater than or equal to 2; see kvphase analyze"),
        (["analyze", "x", "--lang", "fr"], "'fr' is not one of 'en', 'zh'; see"),
        (["info", "--no\x1b[31m"], "No such option"),
        (
            ["info", "--lang", "zh"],
            "用法有误（Missing argument 'target'），请看 kvphase info --help",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(folder: Path, args: list[str], says: str) -> None:
    done = kvphase(*args, cwd=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("kvphase: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert "\x1b" not in done.stderr


def test_without_arguments_there_is_help(folder: Path) -> None:
    done = kvphase(cwd=folder)
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr
    assert "..." not in (done.stdout + done.stderr).split("Commands:")[1]


@pytest.mark.parametrize(
    "text",
    [
        f"{ESCAPES},colour\nx,red\n",
        f"position,correct\n1,1\n2,{ESCAPES}\n",
        f"position,correct\n1,1\n{ESCAPES},1\n",
        f"{ESCAPES},{ESCAPES}\n1,1\n",
        '{"position": "\\u001b[31m", "correct": 1}\n',
    ],
)
def test_a_file_cannot_drive_the_terminal(folder: Path, text: str) -> None:
    (folder / "bad.csv").write_text(text)
    done = kvphase("analyze", "bad.csv", cwd=folder)
    assert done.returncode == 2
    assert "bad.csv" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)


@pytest.mark.skipif(os.name == "nt", reason="such names cannot exist on Windows")
def test_a_files_name_cannot_drive_the_terminal(folder: Path) -> None:
    (folder / f"{ESCAPES}.csv").write_text(COUNTS)
    for more in ([], ["--json"]):
        done = kvphase("analyze", f"{ESCAPES}.csv", *more, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert not {"\x1b", "\x07"} & set(done.stdout + done.stderr)


@pytest.mark.skipif(os.name == "nt", reason="a pipe of POSIX systems")
@pytest.mark.parametrize("args", [["--help"], ["info", "toy:full"], ["info", "toy:full", "--json"]])
def test_a_reader_that_goes_away_is_no_failure(folder: Path, args: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "kvphase", *args],
            cwd=folder,
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=240,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
