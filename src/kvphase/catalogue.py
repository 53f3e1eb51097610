"""What kvphase says, in English and in Chinese: one catalogue for terminal, page and card.

A message is an English string that remembers its key and its values, so that code below the
reports can speak plainly (``raise UsageError(message("key", ...))``, ``Verdict.reason``) and a
report can still say the same in another language.

The texts are in ``data/catalogue/*.json``: ``{"key": {"en": "...", "zh": "..."}}``, with
``str.format`` fields. Keys are ``section.name``, the section being the file's name.
"""

from __future__ import annotations

import json
import locale
import os
from contextvars import ContextVar
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from typing import TextIO

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
VARIABLE = "KVPHASE_LANG"
_PROBE = "\u4e2d\u6587\uff0c\u3002"
"""Chinese that every encoding of Chinese has."""
_chosen: ContextVar[Language | None] = ContextVar("language", default=None)


class Message(str):
    """English text that knows how it was made; anywhere else an ordinary string."""

    key: str
    values: dict[str, Any]

    def __new__(cls, key: str, values: dict[str, Any]) -> Self:
        """The English text of ``key``, its fields filled with ``values``."""
        made = super().__new__(cls, _filled(key, "en", values))
        made.key, made.values = key, values
        return made

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Message], tuple[str, dict[str, Any]]]:
        return Message, (self.key, self.values)


def message(key: str, **values: Any) -> Message:  # noqa: ANN401 - whatever the text formats
    """An English message that can be said in another language later.

    Raises:
        KeyError: the catalogue has no such key, or the text a field that was not given.
    """
    return Message(key, values)


class Catalogue:
    """Says things in one language."""

    def __init__(self, language: Language = "en") -> None:
        """Speak ``language``."""
        self.language: Language = language

    @classmethod
    def on(cls, stream: TextIO) -> Self:
        """The preferred language, or English where ``stream`` cannot carry Chinese.

        A wall of escapes helps nobody.
        """
        return cls(preferred(encoding=stream.encoding))

    def __call__(self, key: str, **values: Any) -> str:  # noqa: ANN401 - whatever it formats
        """The text of ``key`` with its fields filled; messages among the values are translated.

        Raises:
            KeyError: no such key, or a field that was not given.
        """
        return _filled(key, self.language, values)

    def of(self, text: str) -> str:
        """A message in this language; any other text as it is."""
        if isinstance(text, Message):
            return _filled(text.key, self.language, text.values)
        return text


def choose(language: Language | None) -> None:
    """Make ``language`` what `preferred` returns from here on; None for the user's own again."""
    _chosen.set(language)


def carries(encoding: str | None, language: Language) -> bool:
    """Whether text in ``language`` can be written in ``encoding``."""
    if language == "en":
        return True
    try:
        _PROBE.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def preferred(option: str | None = None, *, encoding: str | None = "utf-8") -> Language:
    """The language to speak: the option's, the chosen one, KVPHASE_LANG's or the locale's.

    Chinese for every locale whose language is ``zh``, English for all others, and wherever
    ``encoding`` cannot carry Chinese.
    """
    language: Language = "en"
    for name in (option, _chosen.get(), os.environ.get(VARIABLE), *_of_locale()):
        if name:
            language = "zh" if name.lower().replace("-", "_").split("_")[0] == "zh" else "en"
            break
    return language if carries(encoding, language) else "en"


def _of_locale() -> list[str]:
    """Names of the user's locale, the most telling first; C and POSIX say nothing."""
    names = [os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG")]
    if os.name == "nt":
        code = locale.getlocale()[0] or ""
        names.append("zh" if code.lower().startswith(("zh", "chinese")) else code)
    return [name for name in names if name and name.split(".")[0] not in ("C", "POSIX")]


def _filled(key: str, language: Language, values: dict[str, Any]) -> str:
    spoken = {
        name: _filled(value.key, language, value.values) if isinstance(value, Message) else value
        for name, value in values.items()
    }
    return _texts()[key][language].format_map(spoken)


@cache
def _texts() -> dict[str, dict[str, str]]:
    """Every text of the catalogue by key."""
    texts: dict[str, dict[str, str]] = {}
    for file in (resources.files("kvphase.data") / "catalogue").iterdir():
        if file.name.endswith(".json"):
            section = file.name.removesuffix(".json")
            for name, spoken in json.loads(file.read_text(encoding="utf-8")).items():
                texts[f"{section}.{name}"] = spoken
    return texts


__all__ = [
    "LANGUAGES",
    "Catalogue",
    "Language",
    "Message",
    "carries",
    "choose",
    "message",
    "preferred",
]
