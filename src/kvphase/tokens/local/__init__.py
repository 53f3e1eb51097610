"""Tokenizers that are at hand, for servers that have none to offer.

`load` reads one from a ``tokenizer.json``, from a model's folder, from a GGUF file or from the
packaged tokenizer of DeepSeek-V4; `from_metadata` from what Ollama says of a model. Nothing is
downloaded, and no weights are read.
"""

from __future__ import annotations

from kvphase.tokens.local.metadata import from_metadata
from kvphase.tokens.local.sources import load
from kvphase.tokens.local.tokenizer import LocalTokenizer

__all__ = ["LocalTokenizer", "from_metadata", "load"]
