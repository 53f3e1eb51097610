"""Bundles: what goes in, what stays out, and what they do elsewhere."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from known import engine
from kvphase.causes import cache, repeatability, session, split
from kvphase.causes.session import Options, diagnose, load_diagnosis
from kvphase.causes.stored import pair_json
from kvphase.errors import StoreError, UsageError
from kvphase.report.bundle import read_bundle, write_bundle
from kvphase.report.replay import outcome, replay, replay_json
from kvphase.runs.store import Store
from kvphase.runtimes.http import KEY_VARIABLE
from kvphase.runtimes.toy import ToyWords
from kvphase.serve import Faults, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = " {{mark}}cat: Alice;{{/mark}} dog: Bob; cow: Carol; cat:"
KEY = "sk-very-secret-1234"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A diagnosis of a server whose cache is broken, with a prompt of the user's own."""
    folder = tmp_path_factory.mktemp("alice")
    (folder / "secret.txt").write_text(OWN, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "CAUSES", (repeatability.CAUSE, split.CAUSE, cache.CAUSE))
        patch.setenv(KEY_VARIABLE, KEY)
        path = folder / "run.kvphase"
        with serving(engine(), Faults.parse(["wrong-on-hit=0.5"])) as url:
            diagnose(url, Options(prompt=folder / "secret.txt"), out=path)
        yield path


def test_the_run_names_the_cache(run: Path) -> None:
    found = load_diagnosis(run)
    assert [one.cause for one in found.findings if one.status == "found"] == ["cache"]
    assert found.pair is not None
    assert {step.how for step in found.pair.steps} == {"cached", "cold"}
    assert not found.pair.own


@pytest.fixture
def bundle(run: Path, tmp_path: Path) -> Path:
    write_bundle(run, tmp_path / "issue.zip")
    return tmp_path / "issue.zip"


def spelled(text: str) -> str:
    """``text`` and every list of token ids in it, decoded."""
    words = ToyWords.load()
    lists = re.findall(r"\[[\d,\s]+\]", text)
    ids = [[int(one) for one in re.findall(r"\d+", part)] for part in lists]
    known = [[one for one in part if one < len(words.tokens)] for part in ids]
    return text + "".join(words.decode(part) for part in known)


@pytest.mark.parametrize("include", [False, True])
def test_nothing_secret_is_in_it(run: Path, tmp_path: Path, include: bool) -> None:
    path = tmp_path / "issue.zip"
    write_bundle(run, path, include_prompt=include)
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        text = "".join(spelled(file.read(name).decode()) for name in names)
    assert names == ["issue.md", "bundle.json", "repro.py"]
    for secret in (KEY, str(Path.home()), str(run.parent), "secret.txt", socket.gethostname()):
        assert secret not in text
    assert "cow: Carol; cat:" not in text


def test_a_prompt_of_ones_own_goes_in_only_when_asked(run: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.kvphase"
    own.write_bytes(run.read_bytes())
    pair = pair_json(load_diagnosis(run).pair)
    assert pair is not None
    ids = ToyWords.load().encode(OWN.replace("{{mark}}", "").replace("{{/mark}}", ""))
    steps = [{**step, "prompt": ids, "prefix": 0} for step in pair["steps"]]
    with Store.resume(own) as store:
        store.note(pair={**pair, "steps": steps, "own": True})
    kept = write_bundle(own, tmp_path / "kept.zip")
    assert kept.pair is None
    assert kept.kept_back
    given = write_bundle(own, tmp_path / "given.zip", include_prompt=True)
    assert given.pair is not None
    for name, there in (("kept.zip", False), ("given.zip", True)):
        with zipfile.ZipFile(tmp_path / name) as file:
            text = "".join(spelled(file.read(one).decode()) for one in file.namelist())
        assert ("cow: Carol; cat:" in text) is there


def test_it_replays_elsewhere(bundle: Path) -> None:
    with serving(engine(), Faults.parse(["wrong-on-hit=0.5"])) as url:
        found = replay(bundle, url)
    assert found.same
    assert json.loads(replay_json(found))["outcome"] == "same"
    with serving(engine()) as url:
        assert outcome(replay(bundle, url)) == "gone"


def test_its_script_needs_nothing_but_python(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as file:
        (tmp_path / "repro.py").write_bytes(file.read("repro.py"))
    command = [sys.executable, "-I", str(tmp_path / "repro.py")]
    for faults, code, said in (("wrong-on-hit=0.5", 0, "differ"), ("", 1, "equal here")):
        with serving(engine(), Faults.parse([faults])) as url:
            done = subprocess.run([*command, url], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert said in done.stdout.splitlines()[-1]


def test_equal_runs_make_equal_bundles(run: Path, bundle: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_the_issue_can_be_read_in_chinese(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "zh.zip", "zh")
    with zipfile.ZipFile(tmp_path / "zh.zip") as file:
        assert "如何重现" in file.read("issue.md").decode()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"SQLite format 3\x00"])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.zip"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no bundle"):
        read_bundle(path)


@pytest.mark.parametrize(
    "values",
    [[], {}, {"schema": "kvphase/bundle@9"}, {"schema": "kvphase/bundle@1", "pair": {"steps": 3}}],
)
def test_a_damaged_bundle_is_refused(tmp_path: Path, values: object) -> None:
    path = tmp_path / "odd.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("bundle.json", json.dumps(values))
    with pytest.raises(UsageError):
        read_bundle(path)


def test_a_path_that_cannot_be_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="zip"):
        write_bundle(run, tmp_path / "issue.html")
    with pytest.raises(UsageError):
        write_bundle(run, tmp_path / "none" / "issue.zip")
    with pytest.raises(StoreError):
        write_bundle(tmp_path / "none.kvphase", tmp_path / "issue.zip")


def test_markdown_of_a_model_stays_text(run: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.kvphase"
    odd.write_bytes(run.read_bytes())
    with Store.resume(odd) as store:
        store.note(model="a|b <img src=x> [x](http://x)")
    write_bundle(odd, tmp_path / "odd.zip")
    with zipfile.ZipFile(tmp_path / "odd.zip") as file:
        text = file.read("issue.md").decode()
    assert "<img" not in text
    assert "a\\|b" in text
