"""One local tokenizer: words to ids, ids to words, and the chat template around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kvphase.catalogue import message
from kvphase.errors import RuntimeFault, UsageError
from kvphase.tokens.template import MARKER, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvphase.tokens.file import FileTokenizer
    from kvphase.types import Template

__all__ = ["Chat", "LocalTokenizer"]


class Chat(Protocol):
    """A chat template."""

    def render(self, body: Mapping[str, Any]) -> str:
        """The request ``body`` as text, BOS included if the template spells it.

        Args:
            body: ``messages``, and perhaps ``tools`` and ``chat_template_kwargs``. Thinking is
                off unless these say otherwise.

        Raises:
            UsageError: the template refuses the messages.
        """
        ...


class LocalTokenizer:
    """Answers for a server's tokenizer, with the methods that runtimes have.

    Attributes:
        source: Where it came from, as it may be shown: no path.
        bos: The ids that every prompt of this model starts with; empty if none.
    """

    source: str
    bos: tuple[int, ...]

    def __init__(
        self,
        words: FileTokenizer,
        source: str,
        *,
        bos: Sequence[int] | None = None,
        chat: Chat | None = None,
    ) -> None:
        """Join a tokenizer and a chat template.

        Args:
            words: The tokenizer.
            source: What it is, as it may be shown.
            bos: What prompts start with; what ``words`` puts there by its own rules if not given.
            chat: The chat template, if there is one.
        """
        self._words = words
        self._chat = chat
        self.source = source
        self.bos = words.bos if bos is None else tuple(bos)

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template."""
        return self._chat is not None

    @property
    def bos_text(self) -> str:
        """How BOS is spelled; empty without one."""
        return "".join(map(self._words.name_of, self.bos))

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Token ids of each text, without BOS; special tokens are parsed only if ``special``."""
        return await self._words.tokenize(texts, special=special)

    def spell(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` in the middle of a text, special tokens spelled out."""
        return self._words.spell(ids)

    async def text_of(self, ids: Sequence[int]) -> str:
        """A text that is read as exactly ``ids`` where special tokens are parsed.

        Some tokenizers put a space before every text, so that the text must begin without its own.

        Args:
            ids: A prompt, or the part of one that a server does not add itself (BOS).

        Raises:
            RuntimeFault: there is no such text; the first token that comes out otherwise is named.
        """
        spelled = self.spell(ids)
        texts = list(dict.fromkeys([spelled, spelled.removeprefix(" "), f" {spelled}"]))
        read = await self.tokenize(texts, special=True)
        for text, back in zip(texts, read, strict=True):
            if back == list(ids):
                return text
        pairs = zip(ids, read[0], strict=False)
        place = next((n for n, (one, other) in enumerate(pairs) if one != other), len(read[0]))
        around = self.spell(ids[max(0, place - 1) : place + 2])
        raise RuntimeFault(message("tokenizer.unspellable", place=place, around=around))

    def save(self, path: str | Path) -> None:
        """Write a ``tokenizer.json``; BOS is among its rules, the chat template is not.

        Args:
            path: The file to write.
        """
        self._words.save(path, self.bos)

    def render(self, body: Mapping[str, Any]) -> str:
        """A request as the text that the model reads, BOS left out.

        Args:
            body: ``messages``, and perhaps ``tools`` and ``chat_template_kwargs``. Thinking is
                off unless these say otherwise.

        Raises:
            UsageError: there is no chat template, or it refuses these messages.
        """
        if self._chat is None:
            raise UsageError(message("tokenizer.no-template", source=self.source))
        text = self._chat.render(body)
        return text.removeprefix(self.bos_text) if self.bos else text

    async def template(self) -> Template:
        """The chat template around a user's text, thinking off.

        Raises:
            UsageError: there is none, or it changes the user's text.
        """
        text = self.render({"messages": [{"role": "user", "content": MARKER}]})
        return await split(text, self.tokenize)
