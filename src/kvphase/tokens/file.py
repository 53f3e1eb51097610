"""A tokenizer read from a ``tokenizer.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizers import Tokenizer


class FileTokenizer:
    """Tokenizes with a file as Hugging Face's fast tokenizers save it; nothing is downloaded.

    Attributes:
        bos: The ids that the file's own rules put before every text; empty if none.
    """

    bos: tuple[int, ...]

    def __init__(self, path: str | Path) -> None:
        """Read ``path``.

        Raises:
            UsageError: there is no such file, or it is not a tokenizer.
        """
        from tokenizers import Tokenizer  # late: a compiled library that most commands do without

        path = Path(path)
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            raise UsageError(f"{path} is not a tokenizer.json: {error}") from error
        self._take_over()

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> FileTokenizer:
        """The same around a tokenizer that was read already; it must not be used elsewhere."""
        made = cls.__new__(cls)
        made._tokenizer = tokenizer
        made._take_over()
        return made

    def _take_over(self) -> None:
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.bos = self._start()

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        self._tokenizer.encode_special_tokens = not special
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [list(item.ids) for item in encoded]

    def _start(self) -> tuple[int, ...]:
        """What is added in front of a text that is not empty."""
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a", add_special_tokens=True).ids
        for size in range(len(whole) - len(plain) + 1):
            if whole[size : size + len(plain)] == plain:
                return tuple(whole[:size])
        return ()
