"""What is in a file: formats by content, facts and their places, and everything that can be odd."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvphase.errors import UsageError
from kvphase.probes.formats import Fact, Rule, read_dataset
from kvphase.probes.formats.reading import read_bytes
from kvphase.probes.residues import residues
from kvphase.runs.dataset_grade import is_right
from kvphase.types import Arm, Ask, Reply

DATA = Path(__file__).with_name("data")


def written(folder: Path, content: object, name: str = "odd.bin") -> Path:
    """``content`` as JSON lines, JSON, text or bytes; the name says nothing."""
    if isinstance(content, list):
        content = "\n".join(json.dumps(one) for one in content)
    elif isinstance(content, dict):
        content = json.dumps(content)
    raw = content if isinstance(content, bytes) else str(content).encode()
    (folder / name).write_bytes(raw)
    return folder / name


def ruler(**more: object) -> dict[str, Any]:
    return {"input": "Note: the box is 4711 wide.\n\nHow wide?", "outputs": ["4711"], **more}


def test_formats_are_known_by_content_whatever_they_are_called(tmp_path: Path) -> None:
    for file in DATA.iterdir():
        (tmp_path / "same-name").write_bytes(file.read_bytes())
        assert read_dataset(tmp_path / "same-name").format == read_dataset(file).format


@pytest.mark.parametrize("name", sorted(file.name for file in DATA.iterdir()))
def test_a_fact_stands_where_it_is_said_to(name: str) -> None:
    for item in read_dataset(DATA / name).items:
        for fact in item.facts:
            held = item.texts[fact.text][fact.begin : fact.end]
            said = {"line": "", "regex": "The cellar"}.get(fact.rule, fact.answers[0])
            assert held.startswith(said)
            assert "\n" not in held


def test_answers_close_together_are_one_fact_and_others_several(tmp_path: Path) -> None:
    text = "The keys are 17 and 18 today.\n\nLater it was 19.\n\nWhich?"
    item = read_dataset(written(tmp_path, {"input": text, "outputs": ["17", "18", "19"]})).items[0]
    assert [(fact.answers, fact.rule) for fact in item.facts] == [
        (("17", "18"), "all"),
        (("19",), "contains"),
    ]


def test_prompts_are_those_that_people_use() -> None:
    (first, *_) = read_dataset(DATA / "lookup.jsonl.gz").items
    assert first.texts[0].startswith("Extract the value corresponding to the specified key")
    assert first.texts[0].endswith("Corresponding value:")
    (first, *_) = read_dataset(DATA / "json_kv.jsonl").items
    assert first.texts[0].startswith("JSON data:\n{")
    assert first.texts[0].count("Corresponding value:") == 3  # two demonstrations, the question
    (first, *_) = read_dataset(DATA / "niah.jsonl").items
    assert first.texts[0].endswith(" The numbers kept for kettle are")
    (story,) = read_dataset(DATA / "story.txt").items
    assert story.texts[0].endswith("<|assistant|>")
    # The line that the prompt shows as an example is not asked for.
    assert [fact.answers[0] for fact in story.facts][:2] == ["Berit=19", "Corin=86"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "odd.bin is empty"),
        (b"\xff\xfe plain", "line 1: not UTF-8"),
        (b'{"input": "a", "outputs": ["a"]}\n{"input": "\xff"}', "line 2: not UTF-8"),
        ('{"input": "a", "outputs": ["a"]}\n{"input": ', "line 2: broken JSON"),
        ('{"input": "a" "outputs"}\n{"input": "b"}', "line 1: broken JSON"),
        ('[{"input": "a"},\n {"input" "b"}]', "line 2: broken JSON"),
        ("[1, 2]", "line 1: no JSON object"),
        ({"verse": 1, "line": "x"}, "line 1: none of the known formats; its entries are verse, li"),
        ("Dear reader, nothing is hidden here.", "neither gives a pass key"),
        ([{"context_length": 9, "depth_percent": 5, "score": 1}], "without their prompts"),
        ({"doc": {}, "filtered_resps": [], "arguments": {}}, "kvphase analyze odd.bin"),
        ([ruler(), {"messages": []}], "line 2: the file begins as RULER needles, but"),
        ([ruler(outputs=["12"])], "line 1: the answer '12' does not stand in the prompt"),
        ([ruler(input="4711 here.\n\n4711 there.")], "'4711' stands in several places (2)"),
        ([ruler(outputs=[])], "no answer is given"),
        ({"ordered_kv_records": [["a"]], "key": "a", "value": "b"}, "no list of pairs"),
        (
            {"messages": [{"role": "user", "content": "hi"}], "answer": "hi", "match": "x"},
            "no rule",
        ),
        ({"messages": ["hi"], "answer": "hi"}, "no list of roles"),
        ("The pass key is 1234. Or not.\nThe pass key is 4321.", "2 different pass keys"),
        (b"PK\x03\x04rest", "packed by zip"),
        (b"BZh91", "packed by bzip2"),
        (b"\x1f\x8b\x08\x00cut", "damaged gzip"),
        (gzip.compress(b"a" * 99, mtime=0)[:-9], "damaged gzip"),
    ],
)
def test_bad_input_is_one_sentence_with_file_and_line(
    tmp_path: Path, content: object, says: str
) -> None:
    with pytest.raises(UsageError) as bad:
        read_dataset(written(tmp_path, content))
    assert bad.value.exit_code == 2
    assert "odd.bin" in str(bad.value)
    assert says in str(bad.value)


def test_a_packed_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="larger than"):
        read_bytes(written(tmp_path, gzip.compress(b"a" * 100_000)), 50_000)


def test_a_few_unusable_entries_are_counted_not_fatal(tmp_path: Path) -> None:
    rows = [ruler(), ruler(outputs=["12"]), ruler(outputs=["13"]), ruler()]
    dataset = read_dataset(written(tmp_path, rows))
    assert len(dataset.items) == 2
    assert [(one.line, one.why.key) for one in dataset.unusable] == [
        (2, "dataset.absent"),
        (3, "dataset.absent"),
    ]


@pytest.mark.parametrize(
    ("positions", "spread", "at"),
    [
        ([3 + 8 * i for i in range(20)], "locked", (8, 3, 20)),
        ([3 + 4 * i for i in range(20)], "locked", (4, 3, 20)),
        ([1 + 2 * i for i in range(30)], "locked", (2, 1, 30)),
        ([7, 15], "few", None),
        (list(range(80)), "spread", None),
        ([i + (i % 8 in (1, 2)) for i in range(400)], "uneven", None),
    ],
)
def test_locked_files_are_told_from_others(
    positions: list[int], spread: str, at: tuple[int, int, int] | None
) -> None:
    found = residues(positions)
    assert (found.spread, found.at) == (spread, at)
    assert {m: sum(counts) for m, counts in found.counts.items()} == dict.fromkeys(
        (4, 8), len(positions)
    )


def test_random_positions_are_seldom_called_locked() -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    for n in (4, 12, 40):
        called = sum(residues(rng.integers(0, 4096, n).tolist()).at is not None for _ in range(500))
        assert called <= 5 + 3 * 15**0.5  # three moduli at 1%, and three standard deviations


@pytest.mark.parametrize(
    ("rule", "answers", "text", "right"),
    [
        ("contains", ("4711",), "It is 4711.", True),
        ("contains", ("4711",), "It is 47110.", False),
        ("contains", ("Osby",), "in OSBY", True),
        ("all", ("1", "2"), "1 and 2", True),
        ("all", ("1", "2"), "1 and 3", False),
        ("number", ("48213",), " 48213. Keep", True),
        ("number", ("48213",), "12 or 48213", False),
        ("line", ("Berit=19",), "Ansel=41\n- berit = 19", True),
        ("line", ("Berit=19",), "Berit=190", False),
        ("regex", ("^b+$",), "bbb", True),
        ("choice", ("B",), "(b) because", True),
        ("exact", ("yes",), "yesterday", False),
    ],
)
def test_rules(rule: Rule, answers: tuple[str, ...], text: str, right: bool) -> None:
    fact = Fact(answers, rule, 0, 0, 1)
    ask = Ask("x", (), (1,), 0, answers[0], (answers[0],), Arm.SCREEN, 0, 0, 0, 0, generate=9)
    assert is_right(fact, ask, Reply(text)) is right
