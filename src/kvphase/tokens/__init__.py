"""One-token words of a given tokenizer, and prompts composed from them that are exact to the token.

A tokenizer is any function from texts to ids, so a ``tokenizer.json``, a server's endpoint and a
toy are surveyed in the same way.
"""

from __future__ import annotations

from kvphase.tokens.compose import spell, verify
from kvphase.tokens.file import FileTokenizer
from kvphase.tokens.seams import Tokenize
from kvphase.tokens.survey import survey
from kvphase.tokens.words import WordLists

__all__ = ["FileTokenizer", "Tokenize", "WordLists", "spell", "survey", "verify"]
