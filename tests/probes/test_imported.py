from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvphase.errors import UsageError
from kvphase.probes.imported import (
    ImportedCounts,
    ImportedRows,
    analyze,
    is_sweep,
    read_results,
)
from kvphase.stats.simulate import answer, insequence, periodic, prefix

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.types import Answers

COUNTS = "residue,n,correct\n0,256,112\n1,256,178\n2,256,169\n3,256,76\n"
ROWS = "position,correct,cluster\n10,1,a\n11,0,a\n12,true,b\n13,FALSE,b\n"


def written(folder: Path, text: str | bytes, name: str = "results.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_counts(tmp_path: Path) -> None:
    expected = ImportedCounts((0, 1, 2, 3), (256,) * 4, (112, 178, 169, 76))
    assert read_results(written(tmp_path, COUNTS)) == expected


def as_lists(rows: ImportedRows | ImportedCounts) -> tuple[list[int], list[int], list[int] | None]:
    assert isinstance(rows, ImportedRows)
    cluster = None if rows.cluster is None else rows.cluster.tolist()
    return rows.position.tolist(), rows.correct.tolist(), cluster


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS.replace(",", ";"),
        ROWS.replace(",", "\t"),
        ROWS.replace(",", " | "),
        ROWS.replace("\n", "\r\n"),
        "\ufeff" + ROWS,
        ROWS.replace("\n", "\n\n"),
        ROWS.replace("position", '"Token_Position"').replace("correct", " Right "),
        ROWS.replace("10,", "10.0,"),
        '{"pos": 10, "ok": 1, "doc": "x"}\n\n{"pos": 11, "ok": 0, "doc": "x"}\n'
        '{"pos": 12, "ok": true, "doc": 3}\n{"pos": 13, "ok": false, "doc": 3}\n',
    ],
    ids=["comma", "semicolon", "tab", "bar", "crlf", "bom", "blank", "names", "float", "jsonl"],
)
def test_rows_in_many_spellings(tmp_path: Path, text: str) -> None:
    expected = ([10, 11, 12, 13], [1, 0, 1, 0], [0, 0, 1, 1])
    assert as_lists(read_results(written(tmp_path, text))) == expected


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, "where,won,position\n3,1,0\n4,0,0\n")
    assert as_lists(read_results(path, position="where", correct="won")) == ([3, 4], [1, 0], None)
    both = written(tmp_path, "position,correct,residue,n\n8,1,0,1\n9,0,1,1\n", "both.csv")
    assert isinstance(read_results(both), ImportedCounts)
    assert isinstance(read_results(both, position="position"), ImportedRows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("  \n \n", "is empty"),
        ("position,correct\n", "no results"),
        ("a,b\n1,2\n", "no usable columns.*found: a, b"),
        ("residue,correct\n1,2\n", "no usable columns"),
        ("position,correct\n1,1\nten,0\n", "line 3: position is 'ten', not a number"),
        ("position,correct\n1,1\nnan,0\n", "line 3: position is 'nan'"),
        ("position,correct\n1,1\n2.5,0\n", "line 3: position is '2.5'"),
        ("position,correct\n1,1\n-2,0\n", "line 3: position is '-2'"),
        ("position,correct\n1,1\n1e99,0\n", "line 3: position is '1e99'"),
        ("position,correct\n1,1\n2\n", "line 3: correct is ''"),
        ("position,correct\n1,1\n2,0.5\n", "line 3: correct is '0.5', not 0, 1"),
        ("position,correct\n1,1\n1,0\n", "a single position"),
        ("residue,n,correct\n0,9,3\n1,-9,3\n", "line 3: n is '-9'"),
        ("residue,n,correct\n0,9,3\n1,9,-3\n", "line 3: correct is '-3'"),
        ("residue,n,correct\n0,9,3\n1,9,10\n", "line 3: 10 right of 9"),
        ("residue,n,correct\n0,9,3\n0,9,3\n", "line 3: residue 0 occurs a second time"),
        ("residue,n,correct\n0,9,3\n", "single residue"),
        ('{"position": 1, "correct": 1}\n{"position": 2, ', "line 2: not a JSON object"),
        ('{"position": 1, "correct": 1}\n[1, 2]\n', "line 2: not a JSON object"),
        ('{"position": 1, "correct": null}\n', "line 1: correct is ''"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "not UTF-8"),
        (b"position,correct\n1,\x001\n", "binary"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_results(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_columns(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        read_results(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="is a folder"):
        read_results(tmp_path)
    with pytest.raises(UsageError, match="no column 'where'; found: position"):
        read_results(written(tmp_path, ROWS), position="where")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_file_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for text in (raw, b"position,correct\n" + raw, b"residue,n,correct\n" + raw, b"{" + raw):
        try:
            read = read_results(written(folder, text))
        except UsageError as error:
            said = str(error)
            assert said.endswith(".")
            assert "\n" not in said
            continue
        assert_meaningful(read)


def assert_meaningful(read: ImportedRows | ImportedCounts) -> None:
    """Answers are right or wrong, and counts are those of some of the answers."""
    if isinstance(read, ImportedRows):
        assert len(read.position) == len(read.correct) > 0
        assert set(read.correct.tolist()) <= {0, 1}
    else:
        assert all(0 <= right <= n for n, right in zip(read.n, read.correct, strict=True))


def imported(answers: Answers, *, clusters: bool = True) -> ImportedRows:
    return ImportedRows(answers.position, answers.correct, answers.context if clusters else None)


PROFILE = [0.4, 0.3, 0.35, 0.0]


@pytest.mark.parametrize("clusters", [True, False])
def test_rows_of_a_screen(clusters: bool) -> None:
    rng = np.random.default_rng(0)
    rows = imported(answer(insequence(rng), periodic(0.6, PROFILE), rng), clusters=clusters)
    assert not is_sweep(rows.position)
    verdict = analyze(rows)
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)
    assert verdict.contexts == (4 if clusters else 1)
    assert any("24 neighbours" in note for note in verdict.notes)


def test_rows_of_a_padding_sweep() -> None:
    rng = np.random.default_rng(0)
    answers = answer(prefix(rng, contexts=4), periodic(0.6, PROFILE), rng)
    # Each context starts at a residue of its own.
    home = (answers.position - answers.pad) % 8
    rows = ImportedRows(1000 + answers.pad + home, answers.correct, answers.context)
    assert is_sweep(rows.position)
    verdict = analyze(rows)
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)
    assert any("padding sweep" in note for note in verdict.notes)


def test_clusters_of_one_row_are_ignored() -> None:
    rng = np.random.default_rng(0)
    answers = answer(insequence(rng), periodic(0.6, PROFILE), rng)
    rows = ImportedRows(answers.position, answers.correct, np.arange(len(answers)))
    verdict = analyze(rows)
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)
    assert any("ignored" in note for note in verdict.notes)


def test_many_clusters_of_a_sweep_share_contexts() -> None:
    rng = np.random.default_rng(0)
    pad = np.tile(np.arange(16), 300)
    chance = np.array(PROFILE)[pad % 4] + 0.3
    correct = (rng.random(pad.size) < chance).astype(np.int8)
    verdict = analyze(ImportedRows(pad, correct, np.repeat(np.arange(300), 16)))
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 4)
    assert verdict.contexts == 48


def test_phase_locked_positions_are_refused() -> None:
    rows = ImportedRows(np.arange(0, 800, 8), np.ones(100, dtype=np.int8), None)
    with pytest.raises(UsageError, match="residue 0 modulo 8"):
        analyze(rows)


def test_published_counts_through_a_file(tmp_path: Path) -> None:
    published: dict[str, Any] = json.loads(
        resources.files("kvphase.data").joinpath("published.json").read_text("utf-8")
    )
    model = published["niah"]["models"][4]
    lines = [f"{r},{model['n']},{c}" for r, c in enumerate(model["correct"])]
    path = written(tmp_path, "\n".join(["residue,n,correct", *lines]))
    verdict = analyze(read_results(path))
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 2)
    assert round(verdict.gap.raw_pp, 2) == 6.09
