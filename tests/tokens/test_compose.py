"""Composed prompts against a tokenizer: what is exact passes, what is not names its seam."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from kvphase.errors import RuntimeFault
from kvphase.tokens import FileTokenizer, spell, survey, verify
from kvphase.types import About, Limits, Template, Vocab

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvphase.types import Ask, Reply

HEAD, TAIL = "<s>user ", "</s>"


@dataclass
class Reader:
    """A runtime of which only the tokenizer is used."""

    tokenizer: FileTokenizer
    limits: Limits
    swallow: tuple[int, int] | None = None
    """Two ids that this one merges although the survey's did not."""
    about: About = field(default_factory=lambda: About("reader", "reader"))
    traffic: int | None = None
    read: list[str] = field(default_factory=list)
    """The texts that were tokenized."""

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """As the file says, but for the merge."""
        self.read += texts
        lines = await self.tokenizer.tokenize(texts, special=special)
        return [self._merged(line) for line in lines]

    def _merged(self, ids: list[int]) -> list[int]:
        for i in range(len(ids) - 1):
            if (ids[i], ids[i + 1]) == self.swallow:
                return [*ids[:i], 999_999, *self._merged(ids[i + 2 :])]
        return ids

    async def template(self) -> Template:
        """Never called: `verify` is given the template."""
        raise AssertionError("the template was asked for")

    async def complete(self, ask: Ask) -> Reply:
        """Never called: nothing is asked to check a prompt."""
        raise AssertionError("a question was asked")


@pytest.fixture(scope="session")
def vocab(tokenizer: FileTokenizer) -> Vocab:
    return asyncio.run(survey(tokenizer.tokenize))


def prompt(vocab: Vocab, records: int = 12) -> list[int]:
    """Records with a phrase between them, then a question."""
    ids: list[int] = []
    for key, value in zip(vocab.keys[:records], vocab.values, strict=False):
        phrase = vocab.phrases[len(ids) % len(vocab.phrases)]
        ids += [word.id for word in phrase]
        ids += [key.id, vocab.separator.id, value.id, vocab.terminator.id]
    return [*ids, vocab.keys[0].id, vocab.separator.id]


def spelled(vocab: Vocab, ids: Sequence[int]) -> str:
    """The text of a prompt without its BOS."""
    words = [*vocab.keys, *vocab.values, vocab.separator, vocab.terminator]
    texts = {word.id: word.text for word in (*words, *itertools.chain(*vocab.phrases))}
    return "".join(texts[token] for token in ids)


def templates(tokenizer: FileTokenizer) -> Template:
    head, tail = asyncio.run(tokenizer.tokenize([HEAD.strip(), TAIL], special=True))
    return Template(tuple(head), tuple(tail), HEAD.strip(), TAIL, "t")


def test_exact_prompts_pass(tokenizer: FileTokenizer, vocab: Vocab) -> None:
    reader = Reader(tokenizer, Limits(4096, bos=(1,)))
    prompts = [[1, *prompt(vocab)], [1, *prompt(vocab, 3)], [1, *prompt(vocab)]]
    asyncio.run(verify(reader, vocab, Template(), prompts))
    # Each prompt was read as a whole, and the one that came twice only once.
    assert reader.read == [spelled(vocab, ids[1:]) for ids in prompts[:2]]


def test_template_is_read_with_its_special_tokens(folder: Path) -> None:
    tokenizer = FileTokenizer(folder / "bytes.json")
    vocab = asyncio.run(survey(tokenizer.tokenize))
    template = templates(tokenizer)
    assert template.head[0] == 1
    reader = Reader(tokenizer, Limits(4096))
    whole = [*template.head, *prompt(vocab), *template.tail]
    asyncio.run(verify(reader, vocab, template, [whole]))
    with pytest.raises(RuntimeFault, match="chat template"):
        asyncio.run(verify(reader, vocab, template, [prompt(vocab)]))


@pytest.mark.parametrize(
    ("bos", "message"), [([], "does not start with"), ([1, 1], "starts with BOS twice")]
)
def test_bos_stands_once(
    tokenizer: FileTokenizer, vocab: Vocab, bos: list[int], message: str
) -> None:
    reader = Reader(tokenizer, Limits(4096, bos=(1,)))
    with pytest.raises(RuntimeFault, match=message):
        asyncio.run(verify(reader, vocab, Template(), [[*bos, *prompt(vocab)]]))


def test_the_seam_that_differs_is_named(tokenizer: FileTokenizer, vocab: Vocab) -> None:
    separator, value = vocab.separator, vocab.values[7]
    reader = Reader(tokenizer, Limits(4096), swallow=(separator.id, value.id))
    with pytest.raises(RuntimeFault) as caught:
        asyncio.run(verify(reader, vocab, Template(), [prompt(vocab, 3), prompt(vocab)]))
    assert f"{separator.text!r} and {value.text!r}" in str(caught.value)


def test_a_seam_at_the_template_is_named(folder: Path) -> None:
    tokenizer = FileTokenizer(folder / "bytes.json")
    vocab = asyncio.run(survey(tokenizer.tokenize))
    template = templates(tokenizer)
    reader = Reader(tokenizer, Limits(4096), swallow=(template.head[-1], prompt(vocab)[0]))
    whole = [*template.head, *prompt(vocab), *template.tail]
    with pytest.raises(RuntimeFault) as caught:
        asyncio.run(verify(reader, vocab, template, [whole]))
    assert f"'<s>user' and {vocab.phrases[0][0].text!r}" in str(caught.value)


def test_ids_of_other_words_cannot_be_spelled(vocab: Vocab) -> None:
    with pytest.raises(ValueError, match="token 123456789"):
        spell(vocab, [vocab.keys[0].id, 123456789])
