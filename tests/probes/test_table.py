"""Files as people have them: what is read, and what is refused in one clear sentence."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest

from kvphase.catalogue import Catalogue, Message
from kvphase.errors import UsageError
from kvphase.probes.table import listed, quoted, read_table, shown

if TYPE_CHECKING:
    from pathlib import Path

ROWS = "position,correct\n10,1\n11,0\n"


def written(folder: Path, text: str | bytes, name: str = "results.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path) -> Message:
    with pytest.raises(UsageError) as caught:
        read_table(path)
    said = caught.value.args[0]
    assert isinstance(said, Message)
    assert said.isprintable()
    assert shown(path) in said
    assert Catalogue("zh").of(said) != said
    return said


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-8-sig"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    columns, lines = read_table(written(tmp_path, ROWS.encode(encoding)))
    assert list(columns) == ["position", "correct"]
    assert [line.cell("position") for line in lines] == ["10", "11"]


def test_big_endian_with_a_mark(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xfe\xff" + ROWS.encode("utf-16-be"))
    assert len(read_table(path)[1]) == 2


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (gzip.compress(ROWS.encode(), mtime=0), r"compressed \(gzip\)"),
        (b"\x28\xb5\x2f\xfd....", r"compressed \(zstd\)"),
        (b"PK\x03\x04....", "spreadsheet"),
        (ROWS.encode("utf-16-le"), "binary"),
        ("位置,正确\n".encode("gbk"), "UTF-8"),
        (b"\xff\xfea", "UTF-8"),
        (b"a,b,a\n1,2,3\n", "line 1: two columns are called 'a'"),
        (b'{"a": 1, "a": 2}\n', "line 1: two columns are called 'a'"),
        (b'a,b\n1,2\n3,"4\n5,6\n7,8\n', "line 3: a quotation mark opens here"),
        (b'a,b\n1,2\n3,"' + b"4\n" * 90_000, "line 3: a quotation mark opens here"),
        (b'a,b\n1,"2"3\n', "line 2: not proper CSV"),
        (b"a,b\n1,2,3\n", "line 2: 3 cells, but there are 2 columns"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_refused(tmp_path: Path, raw: bytes, says: str) -> None:
    assert re.search(says, refusal(written(tmp_path, raw)))


def test_blank_columns_and_trailing_delimiters_are_harmless(tmp_path: Path) -> None:
    _, lines = read_table(written(tmp_path, "a,b,,\n1,2,,\n3,4,,,,\n"))
    assert [line.cell("b") for line in lines] == ["2", "4"]


def test_a_record_is_known_by_its_first_line(tmp_path: Path) -> None:
    _, lines = read_table(written(tmp_path, 'a,b\n\n1,"x\ny"\n2,z\n'))
    assert [line.number for line in lines] == [3, 5]


def test_line_separators_inside_json_strings(tmp_path: Path) -> None:
    _, lines = read_table(written(tmp_path, '{"a": "x\u2028y"}\r\n{"a": "z"}\r\n'))
    assert [line.number for line in lines] == [1, 2]


def test_what_is_repeated_is_printable_and_short() -> None:
    assert "\x1b" not in quoted("\x1b]0;title\x07")
    assert len(shown("x" * 1000)) == 60
    assert listed([str(i) for i in range(20)]).endswith("11, ...")
