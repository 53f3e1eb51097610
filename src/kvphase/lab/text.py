"""Text files as training data: pieces of one length, the loss on every next token.

Without a tokenizer a text is its UTF-8 bytes::

    token    T h e _ c a t        ids    84 104 101 32 99 97 116        vocabulary 256
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kvphase.errors import UsageError
from kvphase.lab.data import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Texts"]

BYTES = 256


class Texts:
    """All files as one stream of tokens; the same generator state gives the same pieces."""

    def __init__(self, files: tuple[str, ...], length: int, tokenizer: str | None = None) -> None:
        """Read and tokenise ``files``.

        Args:
            files: Text files in UTF-8, joined in this order.
            length: Tokens of one piece.
            tokenizer: A ``tokenizer.json``; without one tokens are bytes.

        Raises:
            UsageError: A file cannot be read, or all together are shorter than one piece.
        """
        self.length: int = length
        size, encode = _encoder(tokenizer)
        self.vocab_size: int = size
        if not files:
            raise UsageError("data.files names no text file: --set data.files=[FILE]")
        try:
            texts = [encode(Path(file).read_bytes()) for file in files]
        except OSError as error:
            raise UsageError(f"data.files: {error.filename}: {error.strerror}") from error
        self.stream: NDArray[np.int64] = np.concatenate(texts)
        if len(self.stream) <= length:
            raise UsageError(
                f"data.files hold {len(self.stream)} tokens, too few for pieces of data.length"
                f" ({length})"
            )

    @staticmethod
    def size(tokenizer: str | None) -> int:
        """Return the size of the vocabulary without reading a text."""
        return _encoder(tokenizer)[0]

    def batch(self, rng: np.random.Generator, tokens: int) -> Batch:
        """Draw pieces that start anywhere, about ``tokens`` tokens in all."""
        size = max(1, tokens // self.length)
        starts = rng.integers(len(self.stream) - self.length, size=size)
        ids = self.stream[starts[:, None] + np.arange(self.length)]  # [B, T]
        columns = np.broadcast_to(np.arange(self.length - 1), (size, self.length - 1)).copy()
        return Batch(ids=ids, columns=columns, answers=ids[:, 1:], targets=columns + 1)


def _encoder(tokenizer: str | None) -> tuple[int, Callable[[bytes], NDArray[np.int64]]]:
    """Return the size of the vocabulary and the function from a file's bytes to ids."""
    if tokenizer is None:
        return BYTES, lambda raw: np.frombuffer(raw, dtype=np.uint8).astype(np.int64)
    from tokenizers import Tokenizer  # late: bytes need none

    try:
        loaded = Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises this very class
        raise UsageError(f"data.tokenizer: {tokenizer} cannot be read: {error}") from error

    def encode(raw: bytes) -> NDArray[np.int64]:
        return np.array(loaded.encode(raw.decode("utf-8", "replace")).ids, dtype=np.int64)

    return loaded.get_vocab_size(), encode
