r"""How a byte-level BPE cuts a text into words before it merges, by the name that a GGUF gives.

Each model's own expressions, as its tokenizer publishes them and llama.cpp applies them: one after
another, each on the pieces that the ones before left; what a pattern does not match stays a piece.
"""

from __future__ import annotations

__all__ = ["CUTS", "WHOLE", "WITH_BOS"]

_ENDINGS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_BREAKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
"""As llama.cpp has them; the published classes differ in combining marks and accented capitals."""
_LEAD = r"[^\r\n\p{L}\p{N}]?"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_ENDINGS}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{_OTHER}|{_BREAKS}"
_QWEN2 = rf"{_ENDINGS}|{_LEAD}\p{{L}}+|\p{{N}}|{_OTHER}|{_BREAKS}"
_QWEN35 = (
    rf"{_ENDINGS}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BREAKS}"
)
_CAMEL_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_CAMEL_OTHER}|{_BREAKS}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_LEAD}{_UPPER}+{_LOWER}*{_ENDINGS}?"
    rf"|\p{{N}}{{1,3}}|{_CAMEL_OTHER}|{_BREAKS}"
)
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BREAKS}",
)

_FAMILIES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat"): (_GPT2,),
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"): (
        r"\p{N}",
        _GPT2,
    ),
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"): (
        _LLAMA3,
    ),
    ("glm4", "chatglm-bpe"): (_LLAMA3,),
    ("qwen2", "deepseek-r1-qwen", "megrez", "hunyuan", "stablelm2"): (_QWEN2,),
    ("qwen35",): (_QWEN35,),
    ("tekken",): (_TEKKEN,),
    ("gpt-4o", "llama4"): (_GPT4O,),
    ("deepseek-v3", "hunyuan-dense", "joyai-llm"): _DEEPSEEK,
}

CUTS: dict[str, tuple[str, ...]] = {
    name: cuts for names, cuts in _FAMILIES.items() for name in names
}
"""The expressions behind each name of ``tokenizer.ggml.pre``."""
WITH_BOS: frozenset[str] = frozenset(
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")
) | {"tekken"}
"""Names whose prompts start with BOS unless the file says otherwise."""
WHOLE: frozenset[str] = WITH_BOS
"""Names whose words are looked up as a whole before anything is merged."""
