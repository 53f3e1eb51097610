"""Writes GGUF files: a vocabulary, and where a server must load it a tiny random model."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from kvphase.tokens import WordLists

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
ALIGNMENT = 32
WIDTH = 32
TEXTS = (
    "The quick brown fox 1234567 12 345 1,000\n\n\tdef f(x):\n    return x\n",
    "It's don't WE'LL IT'S we've (x) (y) .\n\n  ;\n //x /y\n/z !!\n\n ==\n =\n .\n",
    "你好。世界。今天的天气很好。请把第12345号文件 日本語カタカナ 한국어 привет",
    "café ÀÉÎ iPhone XMLHttpRequest e\u0301 a\u0308 x  y   z    w\n \n  \t\t",
)


def write(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Any] | None = None
) -> Path:
    """A GGUF of version 3; floats are 32 bits wide, integers unsigned, or signed in arrays."""
    tensors = tensors or {}
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for name, value in metadata.items():
        parts += [_text(name), _typed(value)]
    data = b""
    for name, array in tensors.items():
        shape = array.shape[::-1]
        parts += [_text(name), struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))]
        data += array.astype("<f4").tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    header = b"".join(parts)
    path.write_bytes(header + bytes(-len(header) % ALIGNMENT) + data)
    return path


def byte_level() -> tuple[list[str], list[str]]:
    """Tokens and merges of a small BPE that merges across anything, so that every cut shows."""
    words = WordLists.load()
    lines = ["".join(phrase) for phrase in words.phrases]
    lines += [f"{key}: x;{value}" for key, value in zip(words.keys, words.values, strict=False)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=12,
        show_progress=False,
    )
    tokenizer.train_from_iterator([*lines, *TEXTS * 20] * 3, trainer)
    vocabulary = tokenizer.get_vocab()
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return sorted(vocabulary, key=vocabulary.__getitem__), [" ".join(pair) for pair in merges]


def metadata(pre: str, tokens: list[str], merges: list[str]) -> dict[str, Any]:
    """The entries of a byte-level vocabulary; the first two tokens are BOS and EOS."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(tokens) - 2),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def model(tokens: int) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """One random layer that llama.cpp loads."""
    random = np.random.default_rng(0)
    entries = {
        "general.architecture": "llama",
        "llama.context_length": 512,
        "llama.embedding_length": WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": WIDTH,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": WIDTH // 2,
        "llama.vocab_size": tokens,
    }
    tensors = {
        name: random.normal(0, 0.05, (tokens, WIDTH))
        for name in ("token_embd.weight", "output.weight")
    }
    tensors["output_norm.weight"] = np.ones(WIDTH)
    for name in ("attn_norm", "ffn_norm"):
        tensors[f"blk.0.{name}.weight"] = np.ones(WIDTH)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{name}.weight"] = random.normal(0, 0.05, (WIDTH, WIDTH))
    return entries, tensors


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _typed(value: Any) -> bytes:  # noqa: ANN401 - of the kinds below
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    return struct.pack("<I", ARRAY) + _array(value)


def _array(values: list[Any]) -> bytes:
    if isinstance(values[0], str):
        return struct.pack("<IQ", STRING, len(values)) + b"".join(map(_text, values))
    kind, letter = (FLOAT32, "f") if isinstance(values[0], float) else (INT32, "i")
    return struct.pack(f"<IQ{len(values)}{letter}", kind, len(values), *values)
