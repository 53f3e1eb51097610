"""The toys' vocabulary as real models have it: their words, and a token for each byte besides.

So any text has ids. No toy knows those of bytes: it reads each as its `STAND_IN`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvphase.runtimes.toy import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runtimes.toy import ToyWords

__all__ = ["STAND_IN", "Vocabulary", "known"]

PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that byte-level BPE writes as themselves; the others take characters from 256 on."""
NORMAL, CONTROL = 1, 3
STAND_IN = 1
"""The id that a toy reads where it is given one that it does not know."""


class Vocabulary:
    """Text to ids and back, as the toys' ``tokenizer.json`` does it."""

    def __init__(self, words: ToyWords) -> None:
        """Add bytes to ``words``."""
        letters = _letters()
        self._words = words
        self.tokens: list[str] = [
            text if number == words.bos else "".join(letters[byte] for byte in text.encode())
            for number, text in enumerate(words.tokens)
        ]
        """As byte-level BPE writes them."""
        own = set(self.tokens)
        self.tokens += [letter for letter in letters if letter not in own]
        ids = {text: number for number, text in enumerate(self.tokens)}
        self._bytes = [ids[letter] for letter in letters]
        self._back = {number: byte for byte, number in enumerate(self._bytes)}

    @property
    def bos(self) -> int:
        """What every prompt starts with."""
        return self._words.bos

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of ``text``, without BOS."""
        ids: list[int] = []
        for token, piece in self._words.pieces(text, special=special):
            if token == UNKNOWN:
                ids += [self._bytes[byte] for byte in piece.encode(errors="replace")]
            else:
                ids.append(token)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, BOS spelled out.

        Raises:
            IndexError: an id lies outside the vocabulary.
        """
        known = len(self._words.tokens)
        parts = [
            self._words.tokens[token].encode() if token < known else bytes([self._back[token]])
            for token in ids
        ]
        return b"".join(parts).decode(errors="replace")

    def metadata(self) -> dict[str, Any]:
        """The same under a GGUF's names."""
        kinds = [NORMAL] * len(self.tokens)
        kinds[self.bos] = CONTROL
        return {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "llama-bpe",
            "tokenizer.ggml.tokens": self.tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.bos_token_id": self.bos,
            "tokenizer.ggml.eos_token_id": self.bos,
            "tokenizer.ggml.add_bos_token": True,
        }


def known(ids: Sequence[int], size: int) -> list[int]:
    """``ids`` as a model of ``size`` tokens reads them."""
    return [token if token < size else STAND_IN for token in ids]


def _letters() -> list[str]:
    """The character that byte-level BPE writes for each byte."""
    spare = iter(range(256, 512))
    return [chr(byte) if byte in PRINTABLE else chr(next(spare)) for byte in range(256)]
