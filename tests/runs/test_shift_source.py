"""Prompts as they come: formats, marks, and what is refused in one sentence."""

from __future__ import annotations

import json
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING

import pytest

from kvphase.errors import UsageError
from kvphase.runs.shift_place import (
    comment_of,
    head_spots,
    is_chinese,
    moved,
    moved_at,
    paragraph_starts,
)
from kvphase.runs.shift_source import Place, Wanted, outside, read_sources

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str | bytes, name: str = "p.txt") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_marks_are_taken_out_and_remembered(tmp_path: Path) -> None:
    text = "one\n\n{{pad}}two {{mark}}fact{{/mark}} three\n\n{{pad}}four\n"
    (source,) = read_sources(written(tmp_path, text), Wanted(answer="x"))
    assert source.fields == ("one\n\ntwo fact three\n\nfour",)
    assert (source.pad, source.tail_pad) == (Place(0, 5), Place(0, 21))
    assert (source.begin, source.end) == (Place(0, 9), Place(0, 13))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("{{pad}}", "empty"),
        ("a {{mark}}b", "balanced"),
        ("a {{/mark}}b", "balanced"),
        ("a {{mark}}{{/mark}}b", "balanced"),
        ("a {{mark}}b{{mark}}c{{/mark}}", "balanced"),
        ("a {{mark}}b{{pad}}c{{/mark}}", "tear"),
        ("{{pad}}a {{pad}}b", "one {{pad}}"),
        (b"\xff\xfea\0", "UTF-8"),
    ],
)
def test_odd_texts_are_refused(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("{", r"\{")) as caught:
        read_sources(written(tmp_path, text), Wanted())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p.pdf", "a", "format"),
        ("p.json", "{", "no JSON"),
        ("p.json", "3", "format"),
        ("p.json", '{"messages": 3}', "messages"),
        ("p.json", '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', "text"),
        ("p.json", "{}", "exactly one"),
        ("p.yaml", "[a", "no YAML"),
        ("p.yaml", "- {prompt: a, answr: b}", "unknown key"),
        ("p.yaml", "- {name: a, prompt: a}\n- {name: a, prompt: b}", "same name"),
        ("p.yaml", "- {prompt: a, file: b}", "exactly one"),
        ("p.yaml", "- {file: gone.txt}", "no file"),
        ("p.yaml", "- {prompt: [1]}", "not a text"),
        ("p.yaml", "- {prompt: a, match: near, answer: b}", "no rule"),
        ("p.yaml", "- {prompt: a, match: contains}", "expected answer"),
        ("p.yaml", "- {prompt: a, against: b}", "--answer"),
        ("p.yaml", "- {prompt: a, answer: b, tokens: 0}", "positive"),
    ],
)
def test_odd_files_are_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_sources(written(tmp_path, text, name), Wanted())


def test_a_whole_request_keeps_its_tools_and_drops_its_sampling(tmp_path: Path) -> None:
    body = {
        "model": "m",
        "temperature": 1,
        "max_tokens": 9,
        "tools": [{"type": "function"}],
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "user", "content": [{"type": "text", "text": "a {{mark}}b{{/mark}}"}]},
        ],
    }
    (source,) = read_sources(written(tmp_path, json.dumps(body), "p.json"), Wanted())
    assert source.tokens == 9
    request = source.filled(Place(1, 0), "X ").request()
    assert set(request) == {"tools", "messages"}
    assert request["messages"][2]["content"] == [{"type": "text", "text": "X a b"}]


def test_a_suite_names_files_and_takes_defaults(tmp_path: Path) -> None:
    written(tmp_path, "from a file\r\n", "q.txt")
    suite = "- {file: q.txt, answer: 7}\n- {name: two, prompt: b, match: contains}\n"
    one, two = read_sources(written(tmp_path, suite, "s.yaml"), Wanted(answer="z"))
    assert (one.name, one.fields, one.answer) == ("1", ("from a file",), "7")
    assert (two.name, two.answer, two.match) == ("two", "z", "contains")


def test_an_answer_elsewhere_is_counted(tmp_path: Path) -> None:
    text = "Kate {{mark}}Kate{{/mark}} Kate"
    (source,) = read_sources(written(tmp_path, text), Wanted(answer="Kate"))
    assert outside(source) == 2


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("a\n\nb", [3]),
        ("a\r\n\r\nb", [5]),
        ("# Heading\n\nbody\n\nmore", [17]),
        ("# why\n# so\n\ncode = 1\n\nnext = 2", [22]),
        ("```\na\n\nb\n```\n\nc", [14]),
        ("def f():\n    a\n\n    b\n\nc", [23]),
        ("a\n\n", []),
    ],
)
def test_what_belongs_together_is_not_parted(text: str, starts: list[int]) -> None:
    assert paragraph_starts(text) == starts


def test_filler_goes_before_the_marked_span_as_late_as_it_can(tmp_path: Path) -> None:
    text = "one\n\ntwo\n\n{{mark}}three{{/mark}}\n\nfour"
    (source,) = read_sources(written(tmp_path, text), Wanted())
    assert [spot.offset for spot in head_spots(source)] == [10, 5, 0]
    (plain,) = read_sources(written(tmp_path, "one\n\ntwo"), Wanted())
    assert head_spots(plain) == [Place(0, 0)]


def test_a_marked_span_moves_to_either_end(tmp_path: Path) -> None:
    text = "one\n\n{{mark}}fact{{/mark}}\n\ntwo\n\nquestion?"
    (source,) = read_sources(written(tmp_path, text), Wanted())
    head, tail = moved(source, "head"), moved(source, "tail")
    assert head is not None
    assert tail is not None
    assert head.fields == ("fact\n\none\n\ntwo\n\nquestion?",)
    assert tail.fields == ("one\n\ntwo\n\nfact\n\nquestion?",)
    assert tail.begin is not None
    assert tail.fields[0][tail.begin.offset :].startswith("fact")


def test_only_an_exact_move_counts() -> None:
    assert moved_at([1, 2, 3], [1, 9, 9, 2, 3], 2) == 1
    assert moved_at([1, 2, 3], [1, 9, 9, 4, 3], 2) is None
    assert moved_at([1, 2, 3], [1, 9, 2, 3], 2) is None
    assert moved_at([1, 2, 3], [1, 2**31 - 1, 2, 3], 1) is None


def test_prompts_are_known_by_their_script_and_their_comments() -> None:
    assert is_chinese("今天天气不错 today")
    assert not is_chinese("today 今天")
    assert comment_of("// a\nx\n// b\n") == "//"
    assert comment_of("nothing") == "#"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a {{mark}}b{{pad}} c", "not balanced"),
        ("a {{mark}}b{{pad}}c{{/mark}} d", "inside a marked span"),
        ("{{mark}}a{{mark}}b{{/mark}}", "not balanced"),
    ],
)
def test_what_is_wrong_with_marks_is_said(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        read_sources(str(tmp_path / "p.txt"), Wanted())


def test_a_folder_is_called_one_and_too_much_standard_input_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        read_sources(str(tmp_path), Wanted())
    monkeypatch.setattr("kvphase.runs.shift_source.MOST_BYTES", 9)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"ten bytes.")))
    with pytest.raises(UsageError, match="- is larger than"):
        read_sources("-", Wanted())
