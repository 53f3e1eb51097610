"""What a request may ask for: the fields of llama-server that the toys honour, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from kvphase.serve.refusal import ApiError

if TYPE_CHECKING:
    from kvphase.runtimes.toy import ToyEngine, ToyWords
    from kvphase.serve.vocabulary import Vocabulary

__all__ = ["Settings", "read_prompts"]

Json = Mapping[str, Any]

NEUTRAL: dict[str, Any] = {
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "dynatemp_range": 0.0,
    "logit_bias": [],
    "grammar": "",
    "json_schema": None,
    "lora": [],
    "post_sampling_probs": False,
    "response_fields": [],
    "n": 1,
    "suffix": "",
}
"""What llama-server or its OpenAI form knows and the toys do not, with the value that is off."""

LARGEST = 2.0**63
"""Numbers beyond this (1e999 is read as infinity) are refused."""
_KINDS = {
    "int": ((int, float), "number"),
    "float": ((int, float), "number"),
    "bool": ((bool,), "boolean"),
    "tuple[str, ...]": ((list, str), "array"),
}
_ALIASES = {"max_tokens": "n_predict", "logprobs": "n_probs"}
"""OpenAI's names for fields of llama-server."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One completion's settings under llama-server's names, with its defaults."""

    n_predict: int = -1
    """Tokens to generate; -1 until the context is full; 0 generates one, as llama-server does."""
    temperature: float = 0.8
    """0 takes the best token."""
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int = -1
    """-1 draws differently each time."""
    n_probs: int = 0
    """Scores to report for each token: before sampling, temperature 1."""
    id_slot: int = -1
    """Accepted whatever it is, as llama-server does: the one slot answers."""
    cache_prompt: bool = True
    stream: bool = False
    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    samplers: tuple[str, ...] = ("top_k", "top_p", "min_p", "temperature")
    """Which of these are applied, in this order; others that llama-server has are off."""
    stop: tuple[str, ...] = ()

    @classmethod
    def read(cls, body: Json) -> Settings:
        """Read a request's fields, OpenAI's names included.

        Raises:
            ApiError: a field has the wrong type, or asks for what the toys cannot do.
        """
        for name, off in NEUTRAL.items():
            if body.get(name) not in (off, None) and body[name] != {}:
                raise ApiError(501, f"This server does not support {name!r} for toy models")
        body = {_ALIASES.get(name, name): value for name, value in body.items()}
        known = [field for field in fields(cls) if body.get(field.name) is not None]
        return cls(**{f.name: _checked(f.name, str(f.type), body[f.name]) for f in known})


def read_prompts(
    engine: ToyEngine, prompt: object, vocabulary: Vocabulary | None = None
) -> list[tuple[int, ...]]:
    """The token ids of each prompt in a request's ``prompt``: text, ids, both, or several.

    BOS is added where a prompt begins with text, as llama-server does.

    Args:
        engine: The model.
        prompt: As read from JSON.
        vocabulary: What else than the model's own words is understood; nothing if not given.

    Raises:
        ApiError: the prompt is none of these, empty, unknown to the model, or too long.
    """
    several = isinstance(prompt, list) and int not in set(map(type, prompt))
    prompts = prompt if isinstance(prompt, list) and several and prompt else [prompt]
    return [_checked_prompt(engine, one, vocabulary) for one in prompts]


def _checked(name: str, kind: str, value: Any) -> Any:  # noqa: ANN401 - as read from JSON
    """``value`` in the form that the field has."""
    types, label = _KINDS[kind]
    if type(value) not in types:
        raise ApiError(400, f"Field '{name}': type must be {label}, but is {_json_type(value)}")
    if isinstance(value, float) and abs(value) > LARGEST:
        raise ApiError(400, f"Field '{name}': number out of range")
    if kind == "int":
        return int(value)
    return value if kind != "tuple[str, ...]" else _texts(name, value)


def _texts(name: str, value: list[Any] | str) -> tuple[str, ...]:
    """One text or several, the empty ones left out."""
    texts = [value] if isinstance(value, str) else value
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, f"Field '{name}': elements must be strings")
    return tuple(text for text in texts if text)


def _json_type(value: object) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _checked_prompt(
    engine: ToyEngine, prompt: object, vocabulary: Vocabulary | None
) -> tuple[int, ...]:
    """Token ids of one prompt, refused in llama-server's words where it cannot be taken."""
    ids = _ids(vocabulary or engine.words, prompt)
    if not ids:
        raise ApiError(400, '"prompt" must not be empty')
    size = len(vocabulary.tokens) if vocabulary else engine.model.vocab_size
    odd = next((place for place, token in enumerate(ids) if not 0 <= token < size), None)
    if odd is not None:
        raise ApiError(400, f"Prompt contains invalid tokens (the first at index {odd})")
    limit = engine.context_tokens
    if len(ids) >= limit:
        raise ApiError(
            400,
            f"request ({len(ids)} tokens) exceeds the available context size ({limit} tokens), "
            "try increasing it",
            "exceed_context_size_error",
            {"n_prompt_tokens": len(ids), "n_ctx": limit},
        )
    return ids


def _ids(words: ToyWords | Vocabulary, prompt: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Token ids of text, ids, or a list of both."""
    parts = prompt if isinstance(prompt, list) else [prompt]
    kinds = set(map(type, parts))  # exact types: true is not a token
    if not kinds <= {int, str} or type(prompt) is int:
        raise ApiError(
            400,
            '"prompt" elements must be a string, a list of tokens, or a list of mixed strings & '
            "tokens.",
        )
    if kinds <= {int}:
        return tuple(parts)
    ids = [words.bos] if isinstance(parts[0], str) else []
    for part in parts:
        ids += words.encode(part, special=True) if isinstance(part, str) else [part]
    return tuple(ids)
