"""A tokenizer from the metadata of a GGUF, as the file itself or Ollama tells it.

Two kinds of vocabulary are understood as llama.cpp reads them (`llama-vocab.cpp`, 2026-10):

- ``gpt2``: byte-level BPE with merges; how a text is cut beforehand is named by
  ``tokenizer.ggml.pre``. A name that is not known here is refused: a guess would be right for
  plain English and wrong for digits, and positions would move unseen.
- ``llama``: SentencePiece's BPE, whose merges follow from the scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.tokens.file import FileTokenizer
from kvphase.tokens.local.chat import JinjaChat
from kvphase.tokens.local.cutting import CUTS, WHOLE, WITH_BOS
from kvphase.tokens.local.tokenizer import LocalTokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenizers import Tokenizer

__all__ = ["from_metadata"]

PREFIX = "tokenizer.ggml."
SPACE = "\u2581"
"""What SentencePiece writes for a space."""
UNKNOWN, CONTROL, ADDED = 2, 3, 4
"""Types of tokens: unknown and control ones are special, added ones are found in any text."""
ENDINGS = frozenset(("</s>", "<eos>", "<end_of_turn>", "<|im_end|>", "<|end|>", "<|endoftext|>"))
"""Tokens that llama.cpp treats as special even where a file calls them ordinary additions."""
RIGHT_STRIPPING = ("phi-3", "phi3")
"""Models whose special tokens swallow the white space after them, by rules of their own."""
LLAMA_BOS = 1
"""The id of BOS in a ``llama`` vocabulary that does not say."""
GPT2_BOS = 11


def from_metadata(metadata: Mapping[str, Any], source: str = "GGUF vocabulary") -> LocalTokenizer:
    """The tokenizer and chat template that ``metadata`` describes.

    Args:
        metadata: Entries under GGUF's names: ``tokenizer.ggml.*`` and ``tokenizer.chat_template``.
        source: What it came from, as it may be shown.

    Raises:
        UsageError: it describes none, or one of a kind that is not known here.
    """
    fields = {name.removeprefix(PREFIX): value for name, value in metadata.items()}
    tokens, model = fields.get("tokens"), fields.get("model")
    if not isinstance(tokens, list) or not tokens:
        raise UsageError(message("tokenizer.no-vocabulary", source=source))
    try:
        if model == "gpt2":
            tokenizer, bos = _byte_level(fields, tokens), _starts_with_bos(fields, GPT2_BOS)
        elif model == "llama":
            tokenizer = _sentence_piece(fields, tokens, _called(metadata))
            bos = _starts_with_bos(fields, LLAMA_BOS)
        else:
            raise UsageError(message("tokenizer.kind", kind=str(model), source=source))
        _add_special(tokenizer, tokens, fields.get("token_type") or [])
    except UsageError:
        raise
    except Exception as error:  # the tokenizers library raises nothing more particular
        raise UsageError(message("tokenizer.bad-vocabulary", source=source)) from error
    words = FileTokenizer.of(tokenizer)
    template = metadata.get("tokenizer.chat_template")
    special = _named(fields, tokens)
    chat = JinjaChat(template, special) if isinstance(template, str) and template else None
    return LocalTokenizer(words, source, bos=bos, chat=chat)


def _called(metadata: Mapping[str, Any]) -> str:
    """Name and architecture; Ollama tells only the latter."""
    fields = ("general.name", "general.architecture")
    return " ".join(str(metadata.get(field, "")) for field in fields)


def _byte_level(fields: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    name = str(fields.get("pre") or "")
    if name not in CUTS:
        raise UsageError(message("tokenizer.pre", name=name or "-"))
    merges = [tuple(merge.split(" ", 1)) for merge in fields["merges"]]
    vocabulary = {text: number for number, text in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=name in WHOLE))
    steps: list[Any] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in CUTS[name]
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(fields: Mapping[str, Any], tokens: Sequence[str], name: str) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    if any(odd in name.lower() for odd in RIGHT_STRIPPING):
        raise UsageError(message("tokenizer.stripping"))
    vocabulary = {text: number for number, text in enumerate(tokens)}
    unknown = tokens[int(fields.get("unknown_token_id", 0))]
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            _merges(tokens, fields["scores"], vocabulary),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaced = bool(fields.get("add_space_prefix", True))
    first = [normalizers.Prepend(SPACE)] if spaced else []
    tokenizer.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _merges(
    tokens: Sequence[str], scores: Sequence[float], ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Every pair of tokens that joins to a token, the best score first."""
    found = [
        (-scores[number], text[:cut], text[cut:])
        for number, text in enumerate(tokens)
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    found.sort(key=lambda entry: entry[0])
    return [(left, right) for _, left, right in found]


def _add_special(tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> None:
    """Mark the tokens that are found in a text before anything else."""
    from tokenizers import AddedToken

    special, added = [], []
    for text, kind in zip(tokens, types, strict=False):
        if text and (kind in (UNKNOWN, CONTROL) or (kind == ADDED and text in ENDINGS)):
            special.append(AddedToken(text, normalized=False, special=True))
        elif text and kind == ADDED:
            added.append(AddedToken(text, normalized=False, special=False))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(added)


def _starts_with_bos(fields: Mapping[str, Any], usual: int) -> tuple[int, ...]:
    """What every prompt starts with."""
    wanted = fields.get("add_bos_token")
    if wanted is None:
        wanted = fields["model"] == "llama" or fields.get("pre") in WITH_BOS
    return (int(fields.get("bos_token_id", usual)),) if wanted else ()


def _named(fields: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, str]:
    """The special tokens that chat templates call by name."""
    names = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "unk_token": "unknown_token_id",
        "pad_token": "padding_token_id",
    }
    known = {name: fields.get(field) for name, field in names.items()}
    return {
        name: tokens[number]
        for name, number in known.items()
        if isinstance(number, int) and 0 <= number < len(tokens)
    }
