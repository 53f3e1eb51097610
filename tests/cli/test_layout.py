"""``kvphase layout`` on toys and tokenizer files: what it says, writes, verifies and refuses."""

from __future__ import annotations

import json
import random
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

import kvphase
from commands import command
from kvphase.errors import StoreError
from kvphase.runs.budget import Budget
from kvphase.runs.check import load

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 24
PROSE = """You are a careful assistant.

The river was high that spring. It went over both banks.

{{mark}}The code of the door is 8417.{{/mark}}

Nobody came for a long time, and the house stood empty.

{{mark}}The cellar key hangs by the stove.{{/mark}}

What is the code of the door?"""


def lookup(seed: int, spans: int = 1) -> list[dict[str, str]]:
    words = json.loads((resources.files("kvphase.data") / "toys" / "vocab.json").read_text("utf-8"))
    dice = random.Random(seed)
    keys, values = dice.sample(words["keys"], RECORDS), dice.sample(words["values"], RECORDS)
    asked = sorted(dice.sample(range(2, RECORDS - 6), spans))
    records = [f"{key}:{value};" for key, value in zip(keys, values, strict=True)]
    last = "".join(records[-4:])
    for one in asked:
        records[one] = f"{{{{pad}}}}{{{{mark}}}}{records[one]}{{{{/mark}}}}"
    lead = " and so it went on as before"[: 4 * (seed % 3)].rstrip()
    lead = "" if lead.strip() not in ("", "and", "and so") else lead
    text = f"{lead}{''.join(records)} and so it went on{{{{pad}}}}{last}"
    return [{"prompt": f"{text}{keys[one]}:", "answer": values[one].strip()} for one in asked]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPHASE_LANG", "en")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A byte-pair tokenizer of this test's own prose."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([PROSE, "and so it went on as before then they all came"], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("profile") / "w8s4.kvphase"
    settings = kvphase.Settings(design="prefix", confirm="never", early=False)
    run = kvphase.check("toy:w8s4", settings, out=path, budget=Budget())
    assert run.verdict.verdict == "phase-sensitive"
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("spans", [1, 3])
def test_written_prompts_are_answered_better(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    profile: str,
    spans: int,
) -> None:
    tasks = [task for seed in range(60 // spans) for task in lookup(seed, spans)]
    tasks = [{"name": str(n), **task} for n, task in enumerate(tasks)]
    (tmp_path / "suite.json").write_text(json.dumps(tasks), encoding="utf-8")
    words = ("layout", "suite.json", "--profile", profile, "--verify", "toy:w8s4")
    more = ("--write", "new.json", "--out", "v.kvphase", "--json")
    code, shown, _ = command(monkeypatch, capsys, *words, *more)
    found: dict[str, Any] = json.loads(shown)
    assert code == 0
    assert found["basis"] == "profile"
    best = max(found["profile"]["curve"], key=lambda point: point["accuracy"])["residue"]
    after = [span["after"] for one in found["prompts"] for span in one["spans"]]
    assert {one["phase"] for one in after} == {best}
    verified = found["verified"]
    assert verified["before"]["n"] == len(tasks)
    assert verified["after"]["correct"] > verified["before"]["correct"]
    with pytest.raises(StoreError, match="kvphase layout"):
        load(tmp_path / "v.kvphase")
    # What was written is what was asked.
    new = json.loads((tmp_path / "new.json").read_text("utf-8"))
    assert len(new) == len(tasks)
    assert "{{" not in json.dumps(new)
    code, shown, _ = command(monkeypatch, capsys, "layout", "new.json", "toy:w8s4", "--json")
    again = json.loads(shown)["prompts"]
    assert [one["tokens"] for one in again] == [p["tokens_after"] for p in found["prompts"]]


def test_one_prompt_is_placed_by_a_published_profile_with_a_tokenizer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
) -> None:
    (tmp_path / "p.txt").write_text(PROSE, encoding="utf-8")
    words = ["layout", "p.txt", "--tokenizer", tokenizer]
    words += ["--profile", "published:deepseek-v4-flash"]
    code, shown, _ = command(monkeypatch, capsys, *words, "--write", "q.txt", "--json")
    found = json.loads(shown)
    assert code == 0
    assert (found["stride"], found["window"]) == (4, 8)
    assert found["profile"]["published"]
    (prompt,) = found["prompts"]
    assert sum(pad["tokens"] for pad in prompt["pads"]) == prompt["tokens_after"] - prompt["tokens"]
    assert [span["after"]["phase"] for span in prompt["spans"] if span["needle"]] == [2, 2]
    new = (tmp_path / "q.txt").read_text("utf-8")
    assert "8417" in new
    assert "{{" not in new
    code, shown, _ = command(monkeypatch, capsys, *words, "--lang", "en")
    assert "Somebody else's measurement" in shown
    code, shown, _ = command(monkeypatch, capsys, *words, "--lang", "zh")
    assert (code, "他人的测量" in shown) == (0, True)


@pytest.mark.parametrize("way", ["head", "tail", "repeat"])
def test_other_changes_are_exact_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
    way: str,
) -> None:
    (tmp_path / "p.txt").write_text(PROSE, encoding="utf-8")
    words = ("layout", "p.txt", "--tokenizer", tokenizer, "--stride", "8", "--change", way)
    code, shown, _ = command(monkeypatch, capsys, *words, "--write", "q.txt", "--json")
    (prompt,) = json.loads(shown)["prompts"]
    assert (code, prompt["changed"]) == (0, True)
    new = (tmp_path / "q.txt").read_text("utf-8")
    assert new.count("8417") == (2 if way == "repeat" else 1)
    if way == "repeat":
        for span in prompt["spans"]:
            assert (span["after"]["copy"] - span["after"]["start"]) % 8 == 4
    marked = new
    for text in ("The code of the door is 8417.", "The cellar key hangs by the stove."):
        marked = marked.replace(text, f"{{{{mark}}}}{text}{{{{/mark}}}}", 1)
    (tmp_path / "again.txt").write_text(marked, encoding="utf-8")
    code, shown, _ = command(
        monkeypatch, capsys, "layout", "again.txt", *words[2:6], "--stride", "8", "--json"
    )
    (again,) = json.loads(shown)["prompts"]
    assert again["tokens"] == prompt["tokens_after"]
    told = {span["text"]: span["after"]["start"] for span in prompt["spans"]}
    assert told == {span["text"]: span["start"] for span in again["spans"]}


def test_nothing_is_to_be_gained_with_full_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.txt").write_text(lookup(1)[0]["prompt"], encoding="utf-8")
    for more in ((), ("--profile", "published:full-attention"), ("--change", "repeat")):
        code, shown, _ = command(monkeypatch, capsys, "layout", "p.txt", "toy:full", *more)
        assert code == 0
        assert "Nothing is to be gained" in shown
        assert "Nothing was changed" in shown


def test_without_marks_the_usual_parts_are_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
) -> None:
    text = PROSE.replace("{{mark}}", "").replace("{{/mark}}", "")
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    words = ("layout", "p.txt", "--tokenizer", tokenizer, "--stride", "4", "--json")
    code, shown, _ = command(monkeypatch, capsys, *words)
    (prompt,) = json.loads(shown)["prompts"]
    assert (code, prompt["marked"]) == (0, False)
    kinds = [span["kind"] for span in prompt["spans"]]
    assert kinds == ["instructions", "block", "block", "block", "instructions"]


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("", ("toy:w8s4",), "empty"),
        (" cat{{mark}}", ("toy:w8s4",), "balanced"),
        (b"\xff\xfe", ("toy:w8s4",), "UTF-8"),
        (" cat", (), "--tokenizer"),
        (" cat", ("toy:none",), "toy"),
        (" cat", ("--tokenizer", "gone.json"), "gone.json"),
        (" cat", ("toy:w8s4", "--profile", "published:gpt"), "known are"),
        (" cat", ("toy:w8s4", "--profile", "gone.kvphase"), "gone.kvphase"),
        (" cat", ("toy:w8s4", "--stride", "8", "--window", "4"), "leave tokens out"),
        (" cat", ("toy:w8s4", "--window", "4"), "--window needs"),
        (" cat", ("toy:w8s4", "--change", "swap"), "no change"),
        (" cat", ("toy:w8s4", "--change", "repeat"), "no marked span"),
        (" cat", ("toy:w8s4", "--write", "p.txt"), "overwrite"),
        (" cat", ("toy:w8s4", "--write", "no/q.txt"), "cannot be written"),
        ("Guten Tag", ("toy:w8s4",), "cannot spell"),
        (" cat" * 5000, ("toy:w8s4",), "context holds"),
        (
            " cat dog{{mark}} duck:{{/mark}}",
            ("--verify", "toy:w8s4", "--change", "repeat"),
            "expected answer",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str | bytes,
    words: tuple[str, ...],
    says: str,
) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "p.txt").write_bytes(content)
    code, shown, err = command(monkeypatch, capsys, "layout", "p.txt", *words)
    assert (code, shown) == (2, ""), err
    assert says in err
    assert len(err.strip().splitlines()) == 1
