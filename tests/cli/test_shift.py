"""``kvphase shift`` on toys, in process and served, interrupted and misused."""

from __future__ import annotations

import json
import random
import sys
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from commands import command
from kvphase.errors import UsageError
from kvphase.runs.budget import Budget
from kvphase.runs.check import load
from kvphase.runs.shift import Watching, load_shift, run_shift
from kvphase.runs.shift_cost import speed_of
from kvphase.runs.shift_plan import Options
from kvphase.runs.shift_source import Wanted, read_sources
from kvphase.runs.store import Store
from kvphase.serve import serving

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.runs.shift_source import Source

RECORDS = 24
MIDDLE = " and so it went on as before then they all came back to where it was"


def lookup(seed: int) -> tuple[str, str, str]:
    """Records with one of them marked, words, the last four again, and a question about it."""
    words = json.loads((resources.files("kvphase.data") / "toys" / "vocab.json").read_text("utf-8"))
    dice = random.Random(seed)
    keys = dice.sample(words["keys"], RECORDS)
    values = dice.sample(words["values"], RECORDS)
    asked = dice.randrange(4, RECORDS - 8)
    records = [f"{key}:{value};" for key, value in zip(keys, values, strict=True)]
    last = "".join(records[-4:])
    records[asked] = f"{{{{mark}}}}{records[asked]}{{{{/mark}}}}"
    prompt = f"{''.join(records)}{MIDDLE}{{{{pad}}}}{last}{keys[asked]}:"
    return prompt, values[asked].strip(), values[asked + 1].strip()


def written(folder: Path, seed: int = 4) -> tuple[str, str, str]:
    prompt, right, wrong = lookup(seed)
    (folder / "one.txt").write_text(prompt, encoding="utf-8")
    return str(folder / "one.txt"), right, wrong


def suite(folder: Path, count: int) -> str:
    tasks = [
        dict(zip(("prompt", "answer", "against"), lookup(seed), strict=True))
        for seed in range(count)
    ]
    (folder / "suite.json").write_text(json.dumps(tasks), encoding="utf-8")
    return str(folder / "suite.json")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPHASE_LANG", "en")


def test_one_fact_names_its_period_its_shifts_and_a_flat_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, right, wrong = written(tmp_path)
    out = str(tmp_path / "a.kvphase")
    words = ("shift", path, "toy:w8s4", "--answer", right, "--against", wrong, "--out", out)
    code, shown, _ = command(monkeypatch, capsys, *words, "--json")
    found: dict[str, Any] = json.loads(shown)
    assert code == 0
    assert (found["verdict"], found["period"], found["shifts"]) == ("phase-sensitive", 4, 16)
    weak = min(found["slots"], key=lambda slot: slot["level"])
    assert weak["residue"] == 2  # as the needles find it
    assert found["tail"]["status"] == "flat"
    (task,) = found["tasks"]
    screen = sorted((a for a in task["answers"] if a["arm"] == "screen"), key=lambda a: a["pad"])
    assert [a["shift"] for a in screen] == list(range(16))
    assert [a["target"] for a in screen] == [task["target"] + 8 + k for k in range(16)]
    assert json.loads((tmp_path / "a.shift.json").read_text())["period"] == 4
    with pytest.raises(Exception, match="kvphase shift"):
        load(tmp_path / "a.kvphase")


@pytest.mark.parametrize("seed", [0, 4, 9])
def test_the_control_model_shows_nothing(tmp_path: Path, seed: int) -> None:
    path, right, wrong = written(tmp_path, seed)
    sources = read_sources(path, Wanted(answer=right, against=wrong))
    run = run_shift(sources, "toy:full", out=tmp_path / "a.kvphase")
    assert run.found.verdict == "not-detected"
    assert run.found.period is None


def test_answers_are_grouped_where_none_is_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt, _, _ = lookup(2)  # one whose answer flips at one residue
    (tmp_path / "one.txt").write_text(prompt, encoding="utf-8")
    code, shown, _ = command(monkeypatch, capsys, "shift", "one.txt", "--full", "--tokens", "1")
    assert code == 0
    assert "phase-sensitive" in shown
    assert "2 different answers" in shown


def test_a_suite_counts_flips_and_moves_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = suite(tmp_path, 4)
    words = ("shift", path, "toy:w8s4", "--move", "head,tail", "--out", "s.kvphase")
    code, shown, _ = command(monkeypatch, capsys, *words, "--lang", "zh")
    assert code == 0
    assert "4 个任务中有 1 个翻转" in shown
    run = load_shift(tmp_path / "s.kvphase")
    assert run.found.flips == (False, False, True, False)
    places = run.answers.where((run.answers.arm == "shift") & (run.answers.block > 0))
    assert len(places) == 4 * 2 * 4
    assert {tuple(places.position[places.block == 1] % 4)} == {(1, 2, 3, 0) * 4}


@pytest.mark.slow
def test_served_and_in_process_agree(tmp_path: Path) -> None:
    path, right, wrong = written(tmp_path)
    sources = read_sources(path, Wanted(answer=right, against=wrong))
    direct = run_shift(sources, "toy:w8s4", out=tmp_path / "a.kvphase")
    with serving("w8s4") as url:
        served = run_shift(sources, url, out=tmp_path / "b.kvphase")
    assert served.answers.text.tolist() == direct.answers.text.tolist()
    assert (served.found.verdict, served.found.period) == ("phase-sensitive", 4)


def stopped(sources: Sequence[Source], out: Path, after: int) -> None:
    """A run that was interrupted after so many answers."""
    left = iter(range(after))

    def answered(_: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_shift(sources, "toy:w8s4", out=out, watching=Watching(answered=answered))


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    path, right, _ = written(tmp_path)
    sources = read_sources(path, Wanted(answer=right))
    whole = run_shift(sources, "toy:w8s4", out=tmp_path / "a.kvphase")
    stopped(sources, tmp_path / "b.kvphase", after=4)
    for sitting in range(1, 20):  # noqa: B007 - how many it took is looked at
        parts = run_shift(
            sources,
            "toy:w8s4",
            out=tmp_path / "b.kvphase",
            resume=True,
            budget=Budget(questions=9),
        )
        if not parts.partial:
            break
    assert not parts.partial
    assert sitting > 3
    rows = []
    for name in ("a", "b"):
        with Store.read(tmp_path / f"{name}.kvphase") as store:
            rows.append([(ask.id, ask.arm, ask.pad) for ask in store.asks()])
    assert rows[0] == rows[1]
    assert parts.answers.text.tolist() == whole.answers.text.tolist()
    assert parts.found == whole.found
    other = read_sources(path, Wanted(answer="Kate"))
    with pytest.raises(UsageError, match="other prompts"):
        run_shift(other, "toy:w8s4", out=tmp_path / "b.kvphase", resume=True)
    with pytest.raises(UsageError, match="other options"):
        run_shift(sources, "toy:w8s4", Options(seed=1), out=tmp_path / "b.kvphase", resume=True)


@pytest.mark.parametrize(
    ("match", "answer", "right"),
    [
        ("contains", "Kate", False),
        ("regex", "^ ?[A-Z]", True),
        (f"command:{sys.executable} -c 'import sys; sys.exit(not sys.stdin.read())'", None, True),
        ("command:false", None, False),
    ],
)
def test_rules_decide_what_is_right(
    tmp_path: Path, match: str, answer: str | None, right: bool
) -> None:
    path, _, _ = written(tmp_path)
    sources = read_sources(path, Wanted(answer=answer, match=match, tokens=1))
    run = run_shift(sources, "toy:full", out=tmp_path / "a.kvphase")
    assert set(run.answers.correct.tolist()) == {int(right)}
    assert run.found.verdict == "saturated"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gone.txt",), "no file"),
        (("one.txt", "--move", "middle"), "no place"),
        (("one.txt", "--match", "near"), "no rule"),
        (("one.txt", "--answer", "(", "--match", "regex"), "regular expression"),
        (("one.txt", "--answer", "x", "--match", "json"), "no JSON"),
        (("one.txt", "--match", "command:no-such-thing"), "cannot be run"),
        (("one.txt", "--answer", "Zebulon"), "cannot be spelled"),
        (("one.txt", "--chat"), "template|renders"),
        (("one.txt", "--resume"), "--out"),
        (("one.txt", "--tokens", "4090"), "context holds"),
        (("odd.txt",), "cannot spell"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    says: str,
) -> None:
    written(tmp_path)
    (tmp_path / "odd.txt").write_text("Guten Tag", encoding="utf-8")
    code, shown, err = command(monkeypatch, capsys, "shift", words[0], "toy:full", *words[1:])
    assert (code, shown) == (2, "")
    assert len(err.strip().splitlines()) <= 4
    assert any(part in err for part in says.split("|")), err


def test_a_plan_says_what_then_happens_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = suite(tmp_path, 3)
    code, shown, _ = command(monkeypatch, capsys, "shift", path, "--full", "--plan", "--json")
    planned = json.loads(shown)
    assert (code, planned["fits"]) == (0, True)
    assert [part["requests"] for part in planned["parts"]] == [3, 48, 48]
    assert not (tmp_path / "kvphase-runs").exists()
    run = run_shift(read_sources(path, Wanted()), "toy:w8s4", Options(full=True))
    for said, counted in (
        (("evaluated",), ("prefilled",)),
        (("cached",), ("cached",)),
        (("evaluated", "generated"), ("prefilled", "generated")),
    ):
        told = sum(part[name] for part in planned["parts"] for name in said)
        assert told == pytest.approx(sum(run.totals[name] or 0 for name in counted), rel=0.05)


@pytest.mark.parametrize(
    ("budget", "would_do"),
    [("20q", "--budget 27q"), ("1ktok", "--budget 5ktok"), ("$0.001", "--budget '$0.0047'")],
)
def test_a_budget_that_does_not_hold_the_first_shifts_is_refused_beforehand(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    budget: str,
    would_do: str,
) -> None:
    path = suite(tmp_path, 3)
    words = ("shift", path, "toy:w8s4", "--budget", budget, "--price", "1,1")
    code, shown, err = command(monkeypatch, capsys, *words, "--out", "a.kvphase")
    assert (code, shown) == (2, "")
    assert would_do in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "a.kvphase").exists()
    code, shown, _ = command(monkeypatch, capsys, *words, "--plan", "--json")
    assert (code, json.loads(shown)["fits"]) == (0, False)
    code, shown, _ = command(monkeypatch, capsys, *words, "--plan")
    assert would_do in " ".join(shown.split())


def test_what_would_fit_of_a_suite_does_and_the_next_part_is_not_begun(tmp_path: Path) -> None:
    sources = read_sources(suite(tmp_path, 3), Wanted())
    with pytest.raises(UsageError, match="a suite of the first 2 tasks"):
        run_shift(sources, "toy:w8s4", budget=Budget(questions=20))
    run = run_shift(sources[:2], "toy:w8s4", Options(full=True), budget=Budget(questions=66))
    assert (run.totals["asked"], run.partial) == (66, False)
    # The eight shifts fit; the eight more that they call for would not, and are not begun.
    asked = run_shift(sources, "toy:w8s4", budget=Budget(questions=30))
    assert asked.totals["asked"] == 27
    assert asked.partial
    assert "the next part needs 24 requests" in asked.manifest["stopped"]


def test_time_counts_once_the_endpoint_was_timed() -> None:
    # A prompt of 1,000 tokens in 10 s, the same with 900 of them in the cache in 2 s.
    speed = speed_of([(1000, 10.0), (1000, 10.0), (100, 2.0)], 900)
    assert (round(speed.rate, 3), round(speed.each, 3)) == (112.5, 1.111)
    forgets = speed_of([(1000, 10.0), (1000, 10.0), (1000, 10.0)], 900)
    assert (forgets.rate, forgets.each, forgets.reuse) == (100.0, 0.0, False)
    assert speed_of([(500, 5.0)], 0).rate == 100.0
