"""Where a local tokenizer may come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.tokens.file import FileTokenizer
from kvphase.tokens.local.chat import JinjaChat
from kvphase.tokens.local.deepseek import NAMES, load_deepseek
from kvphase.tokens.local.gguf import read_metadata
from kvphase.tokens.local.metadata import from_metadata
from kvphase.tokens.local.tokenizer import LocalTokenizer

__all__ = ["load"]

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
LONGEST_TEXT = 2**20
"""Bytes of a settings file or a template that are read."""


def load(where: str | Path) -> LocalTokenizer:
    """A tokenizer at hand; nothing is downloaded.

    Args:
        where: A ``tokenizer.json``; a model's folder with one and perhaps
            ``tokenizer_config.json`` and ``chat_template.jinja``; a GGUF file, of which only the
            metadata is read; or ``deepseek-v4`` or ``deepseek-v4.1`` for the packaged tokenizer
            with that chat encoding (the extra ``deepseek``).

    Raises:
        UsageError: it is none of these, or of a kind that is not known here.
    """
    if str(where) in NAMES:
        return load_deepseek(str(where))
    path = Path(where)
    if path.is_dir():
        return _from_folder(path)
    if path.suffix.lower() == ".gguf":
        return from_metadata(read_metadata(path))
    return LocalTokenizer(FileTokenizer(path), TOKENIZER)


def _from_folder(folder: Path) -> LocalTokenizer:
    """A folder as transformers' ``save_pretrained`` writes it.

    As with transformers, what stands before every text is decided by ``tokenizer.json`` alone.
    """
    words = FileTokenizer(folder / TOKENIZER)
    settings = _settings(folder / SETTINGS)
    special = {
        name: _spelling(value) for name, value in settings.items() if name.endswith("_token")
    }
    source = _text(folder / TEMPLATE) or _template(settings.get("chat_template"))
    chat = JinjaChat(source, {k: v for k, v in special.items() if v}) if source else None
    return LocalTokenizer(words, "tokenizer.json of a folder", chat=chat)


def _settings(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(message("tokenizer.bad-settings", name=path.name)) from error
    if not isinstance(value, dict):
        raise UsageError(message("tokenizer.bad-settings", name=path.name))
    return value


def _template(value: object) -> str:
    """The template in the settings: a text, or the one called "default" among several."""
    if isinstance(value, list):
        named = [one for one in value if isinstance(one, dict) and one.get("name") == "default"]
        value = named[0].get("template") if named else None
    return value if isinstance(value, str) else ""


def _spelling(value: object) -> str:
    """A special token's text, which is given as such or inside an object."""
    inner = value.get("content") if isinstance(value, dict) else value
    return inner if isinstance(inner, str) else ""


def _text(path: Path) -> str:
    """The text of a small file; empty if there is none.

    Raises:
        UsageError: it is no text, or too long for what it should be.
    """
    if not path.is_file():
        return ""
    try:
        data = path.read_bytes()
        if len(data) > LONGEST_TEXT:
            raise UsageError(message("tokenizer.bad-settings", name=path.name))
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(message("tokenizer.bad-settings", name=path.name)) from error
