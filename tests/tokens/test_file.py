"""Tokenizers from files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvphase.errors import UsageError
from kvphase.tokens import FileTokenizer

if TYPE_CHECKING:
    from pathlib import Path


def test_bos_is_what_the_file_puts_before_a_text(folder: Path) -> None:
    assert FileTokenizer(folder / "spaces.json").bos == (1,)
    assert FileTokenizer(folder / "bytes.json").bos == ()


def test_special_tokens_are_parsed_only_on_request(folder: Path) -> None:
    tokenizer = FileTokenizer(folder / "bytes.json")
    plain, special = (
        asyncio.run(tokenizer.tokenize(["<s> cat"], special=parsed))[0] for parsed in (False, True)
    )
    assert special[0] == 1
    assert 1 not in plain


@pytest.mark.parametrize("text", ["", "{}", "<html>", '{"model": {"type": "BPE"}}'])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"is not a tokenizer\.json"):
        FileTokenizer(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        FileTokenizer(tmp_path / "none.json")
