"""Small real tokenizers, trained on the spot from the word lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from kvphase.tokens import FileTokenizer, WordLists

if TYPE_CHECKING:
    from pathlib import Path

SPECIAL = ["<unk>", "<s>", "</s>"]


def corpus(words: WordLists) -> list[str]:
    """Text in which every word occurs on its own and among the fillers."""
    records = [
        f"{key}: {value.strip()};" for key, value in zip(words.keys, words.values * 3, strict=False)
    ]
    return [*records, *("".join(phrase) for phrase in words.phrases)] * 4


def train(tokenizer: Tokenizer, lines: list[str], size: int, alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def byte_level(lines: list[str], size: int, *, cut: bool = True) -> Tokenizer:
    """Byte-level BPE; without ``cut`` it merges across words as often as it pays."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut)
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, lines, size, pre_tokenizers.ByteLevel.alphabet())


def prefix_space(lines: list[str], size: int) -> Tokenizer:
    """A space before every text, as SentencePiece does, and BOS by the file's own rules."""
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    train(tokenizer, lines, size, [])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


@pytest.fixture(scope="session")
def words() -> WordLists:
    return WordLists.load()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, words: WordLists) -> Path:
    """The tokenizers' files."""
    path = tmp_path_factory.mktemp("tokenizers")
    lines = corpus(words)
    byte_level(lines, 6000).save(str(path / "bytes.json"))
    prefix_space(lines, 6000).save(str(path / "spaces.json"))
    byte_level(lines, 6000, cut=False).save(str(path / "merging.json"))
    byte_level(lines, 280).save(str(path / "letters.json"))
    return path


@pytest.fixture(scope="session", params=["bytes", "spaces"])
def tokenizer(request: pytest.FixtureRequest, folder: Path) -> FileTokenizer:
    return FileTokenizer(folder / f"{request.param}.json")
