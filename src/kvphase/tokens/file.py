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
        self._lead: list[int] = self._tokenizer.encode("a", add_special_tokens=False).ids
        self._lead_text: str = self._tokenizer.decode(self._lead, skip_special_tokens=False)

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        self._tokenizer.encode_special_tokens = not special
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [list(item.ids) for item in encoded]

    def spell(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` in the middle of a text, special tokens spelled out.

        A decoder that drops a text's first space is given a token before them to drop it from.
        """
        ids = list(ids)
        whole: str = self._tokenizer.decode([*self._lead, *ids], skip_special_tokens=False)
        return whole[len(self._lead_text) :]

    def save(self, path: str | Path, bos: Sequence[int]) -> None:
        """Write the tokenizer's file, with ``bos`` put before every text by its rules."""
        from tokenizers import Tokenizer, processors

        copy = Tokenizer.from_str(self._tokenizer.to_str())
        names = [self.name_of(token) for token in bos]
        copy.post_processor = processors.TemplateProcessing(
            single=" ".join([*names, "$A"]),
            special_tokens=list(zip(names, bos, strict=True)),
        )
        copy.save(str(path))

    def name_of(self, token: int) -> str:
        """A token as the vocabulary writes it; for special tokens that is its text."""
        return str(self._tokenizer.id_to_token(token) or "")

    def id_of(self, text: str) -> int:
        """The id of the token that ``text`` spells.

        Raises:
            UsageError: there is no such token.
        """
        found = self._tokenizer.token_to_id(text)
        if found is None:
            raise UsageError(f"this tokenizer has no token {text}")
        return int(found)

    def _start(self) -> tuple[int, ...]:
        """What is added in front of a text that is not empty."""
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a", add_special_tokens=True).ids
        for size in range(len(whole) - len(plain) + 1):
            if whole[size : size + len(plain)] == plain:
                return tuple(whole[:size])
        return ()
