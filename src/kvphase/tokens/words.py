"""The candidate words that a survey chooses from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class WordLists:
    """Candidates in order of preference; every word with its leading space, as in a prompt."""

    keys: tuple[str, ...]
    """Animals, then other concrete nouns."""
    values: tuple[str, ...]
    """First names."""
    phrases: tuple[tuple[str, ...], ...]
    """Fillers, word by word. No filler word is a key, a value or a separator."""
    pairs: tuple[tuple[str, str], ...]
    """(separator, terminator) as they follow a word directly."""

    @classmethod
    def load(cls) -> WordLists:
        """The lists that come with kvphase."""
        file = resources.files("kvphase.data") / "words.json"
        lists = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            keys=_spaced(lists["animals"] + lists["nouns"]),
            values=_spaced(lists["names"]),
            phrases=tuple(_spaced(phrase.split()) for phrase in lists["phrases"]),
            pairs=tuple((separator, terminator) for separator, terminator in lists["pairs"]),
        )


def _spaced(words: list[str]) -> tuple[str, ...]:
    return tuple(f" {word}" for word in words)
