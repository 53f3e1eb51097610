"""The survey of real tokenizers: what it finds stays one token each, wherever it stands."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvphase.errors import UsageError
from kvphase.runtimes.toy import UNKNOWN, ToyWords
from kvphase.tokens import FileTokenizer, WordLists, spell, survey
from kvphase.tokens.seams import Seam, first_merge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.types import Vocab


@pytest.fixture(scope="session")
def vocab(tokenizer: FileTokenizer) -> Vocab:
    return asyncio.run(survey(tokenizer.tokenize))


def compose(vocab: Vocab, data: st.DataObject) -> list[int]:
    """Any prompt that the rules of `survey` allow: fillers, records, a question."""
    ids: list[int] = []
    for _ in range(data.draw(st.integers(1, 6))):
        phrase = data.draw(st.sampled_from(vocab.phrases))
        start = data.draw(st.integers(0, 5))
        ids += [word.id for word in phrase[start:]]
        ids += [word.id for word in data.draw(st.sampled_from(vocab.phrases))]
        del ids[len(ids) - data.draw(st.integers(0, 5)) :]
        for _ in range(data.draw(st.integers(1, 3))):
            key = data.draw(st.sampled_from(vocab.keys))
            value = data.draw(st.sampled_from(vocab.values))
            ids += [key.id, vocab.separator.id, value.id, vocab.terminator.id]
    return [*ids, data.draw(st.sampled_from(vocab.keys)).id, vocab.separator.id]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_prompt_is_read_as_composed(
    tokenizer: FileTokenizer, vocab: Vocab, data: st.DataObject
) -> None:
    ids = compose(vocab, data)
    text = spell(vocab, ids)
    forms = asyncio.run(tokenizer.tokenize([text, text.removeprefix(" ")]))
    assert ids in forms


def test_most_words_are_found(vocab: Vocab, words: WordLists) -> None:
    assert len(vocab.keys) >= 264
    assert len(vocab.values) >= 200
    assert len(vocab.phrases) >= 12
    assert [w.text for w in vocab.keys] == [t for t in words.keys if t in _texts(vocab.keys)]
    assert (vocab.separator.text, vocab.terminator.text) == (":", ";")


def _texts(words: Sequence[object]) -> set[str]:
    return {getattr(word, "text", "") for word in words}


def test_no_id_has_two_texts(vocab: Vocab) -> None:
    words = {*vocab.keys, *vocab.values, vocab.separator, vocab.terminator}
    words |= {word for phrase in vocab.phrases for word in phrase}
    assert len({word.id for word in words}) == len(words) == len({word.text for word in words})


def test_same_tokenizer_same_vocabulary(tokenizer: FileTokenizer, vocab: Vocab) -> None:
    assert asyncio.run(survey(tokenizer.tokenize)) == vocab


def test_few_texts_are_needed(tokenizer: FileTokenizer) -> None:
    texts: list[str] = []

    async def counted(batch: Sequence[str]) -> list[list[int]]:
        texts.extend(batch)
        return await tokenizer.tokenize(batch)

    asyncio.run(survey(counted))
    assert len(texts) < 80  # one request each at a server
    assert max(map(len, texts)) < 20_000


def test_toy_tokenizer_gives_all_its_words() -> None:
    toy = ToyWords.load()
    file = resources.files("kvphase.data") / "toys" / "vocab.json"
    listed = json.loads(file.read_text(encoding="utf-8"))

    async def tokenize(texts: Sequence[str]) -> list[list[int]]:
        return [toy.encode(text) for text in texts]

    vocab = asyncio.run(survey(tokenize))
    assert {word.text for word in vocab.keys} == set(listed["keys"])
    assert {word.text for word in vocab.values} == set(listed["values"])
    assert [[w.text for w in phrase] for phrase in vocab.phrases] == listed["phrases"]
    assert UNKNOWN not in {word.id for word in (*vocab.keys, *vocab.values)}


def test_trained_tokenizer_that_merges_names_the_pair(folder: Path) -> None:
    """It was trained without any cut between words, so that whole records are tokens."""
    tokenizer = FileTokenizer(folder / "merging.json")
    with pytest.raises(UsageError, match=r"merges across every seam.*: '.+' and '.+' do not"):
        asyncio.run(survey(tokenizer.tokenize))


def test_the_pair_named_is_the_one_that_merges() -> None:
    with pytest.raises(UsageError, match=r"merges across every seam.*: ':' and ' Alice' do not"):
        asyncio.run(survey(fuse_what_follows))


async def fuse_what_follows(texts: Sequence[str]) -> list[list[int]]:
    """Words are tokens, but every sign (and " is") fuses with the word behind it."""
    pieces = (re.findall(r"[^\w\s]+ ?\w*| is \w+| ?\w+|\s", text) for text in texts)
    return [[zlib.crc32(piece.encode()) for piece in line] for line in pieces]


def test_tokenizer_of_letters_has_too_few_words(folder: Path) -> None:
    tokenizer = FileTokenizer(folder / "letters.json")
    with pytest.raises(UsageError, match=r"too few .* \d+ keys \(at least 32 are needed\)"):
        asyncio.run(survey(tokenizer.tokenize))


def test_other_pair_is_taken_when_the_first_merges(folder: Path, words: WordLists) -> None:
    """A tokenizer with "word;" as one token still has a terminator that stands alone."""
    inner = FileTokenizer(folder / "bytes.json")

    async def tokenize(texts: Sequence[str]) -> list[list[int]]:
        ids = await inner.tokenize([*texts, " Alice;"])
        end = ids.pop()[-1]
        return [_fused(line, end) for line in ids]

    vocab = asyncio.run(survey(tokenize, words))
    assert vocab.terminator.text != ";"


def _fused(ids: Sequence[int], end: int) -> list[int]:
    """``ids`` with every ``end`` fused into the token before it."""
    fused: list[int] = []
    for token in ids:
        if token == end and fused:
            fused[-1] += 1_000_000
        else:
            fused.append(token)
    return fused


def test_word_that_fuses_with_one_filler_is_dropped(folder: Path, words: WordLists) -> None:
    """Only " river" after " the" fails: the key goes, the phrase stays."""
    inner = FileTokenizer(folder / "bytes.json")
    pair = asyncio.run(inner.tokenize([" the river"]))[0]
    assert len(pair) == 2

    async def tokenize(texts: Sequence[str]) -> list[list[int]]:
        lines = []
        for ids in await inner.tokenize(texts):
            line: list[int] = []
            for token in ids:
                if line and [line[-1], token] == pair:
                    line[-1] = 999_999
                else:
                    line.append(token)
            lines.append(line)
        return lines

    few = replace(words, phrases=words.phrases[2:3], keys=(*words.keys[:60], " river"))
    vocab = asyncio.run(survey(tokenize, few))
    assert " river" not in _texts(vocab.keys)
    assert len(vocab.keys) == 60
    assert len(vocab.phrases) == 1


def test_seam_is_the_pair_that_merges(folder: Path) -> None:
    tokenizer = FileTokenizer(folder / "bytes.json")
    assert asyncio.run(first_merge(tokenizer.tokenize, [" cat", ":", " Alice", ";"])) is None
    broken = asyncio.run(first_merge(tokenizer.tokenize, [" cat", ":", " Al", "ice", ";"]))
    assert broken == Seam(" Al", "ice")


def test_word_lists_hold_the_toys_words_and_do_not_overlap(words: WordLists) -> None:
    fillers = {word for phrase in words.phrases for word in phrase}
    others = {*words.keys, *words.values, *(sign for pair in words.pairs for sign in pair)}
    assert not fillers & others
    assert len(set(words.keys)) == len(words.keys) >= 600
    assert len(set(words.values)) == len(words.values) >= 250
    assert not set(words.keys) & set(words.values)
    assert all(8 <= len(phrase) <= 14 for phrase in words.phrases)
