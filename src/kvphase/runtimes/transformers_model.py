"""Loads a model that ``transformers`` saved, and tries whether its cache can be gone on from."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.catalogue import Message, message
from kvphase.errors import UsageError
from kvphase.types import About

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["SavedModel", "cache_fault", "load"]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
TRIAL_TOKENS = 301
"""Length of the prefix of the trial: longer than DeepSeek-V4's coarsest window, twice, and more."""
TRIAL_WINDOW = 1024
"""Longest sliding window that the trial's prefix outgrows."""
TRIAL_SUFFIXES = (1, 2, 3, 5, 9)
"""Tokens that the trial's questions have; together they end at any residue of a small stride."""
AGREES, AGREES_HALF = 1e-3, 0.05
"""Mean difference of two logits, over their spread, that rounding explains: 32 bits, fewer."""


@dataclass(slots=True)
class SavedModel:
    """A model with its tokenizer; `load` opens one."""

    model: Any
    """Of transformers, in evaluation mode."""
    tokenizer: Any
    """Of transformers, backed by the library tokenizers."""
    about: About
    context_tokens: int
    vocab_size: int
    local_window: int | None
    stops: frozenset[int]
    """Ids that end an answer."""
    keeps: bool = True
    """A cache may be copied and gone on from."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the model's forward is called with each time."""
    cache_name: str = "cache"
    """Its argument for the cache: older versions call it ``past_key_values``."""

    def extend(self, cache: Any, ids: Sequence[int]) -> tuple[NDArray[np.float32], Any]:  # noqa: ANN401
        """Evaluate ``ids`` (at least one) behind ``cache``, which grows; None is the empty one.

        Returns:
            Logits after the last id, or after each where the model gives no fewer, shape
            (1 or len(ids), vocab); and the cache, None where none is kept.
        """
        import torch
        from transformers import DynamicCache

        if cache is None and self.keeps:
            cache = DynamicCache(config=self.model.config)
        options = {**self.options, self.cache_name: cache} if self.keeps else self.options
        with torch.inference_mode():
            tokens = torch.tensor([list(ids)], device=self.model.device)
            logits = self.model(tokens, use_cache=self.keeps, **options).logits[0]
        array: NDArray[np.float32] = logits.float().cpu().numpy()
        return array, cache


def load(folder: Path) -> SavedModel:
    """Read configuration, tokenizer and weights, and try the cache.

    Args:
        folder: As ``save_pretrained`` wrote it.

    Raises:
        UsageError: something is missing, damaged, of another kind, or only there as a pickle.
    """
    import torch

    files = _weights(folder)
    with _quiet():
        config, tokenizer = _described(folder)
        model = _filled(folder)
    model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
    text = config.get_text_config()
    context = getattr(text, "max_position_embeddings", None)
    if not isinstance(context, int):
        raise UsageError(message("transformers.no-length"))
    parameters = inspect.signature(model.forward).parameters
    saved = SavedModel(
        model=model,
        tokenizer=tokenizer,
        about=_about(folder, files, model),
        context_tokens=context,
        vocab_size=int(text.vocab_size),
        local_window=_local_window(text),
        stops=_stops(model),
        options={"logits_to_keep": 1} if "logits_to_keep" in parameters else {},
        cache_name="cache" if "cache" in parameters else "past_key_values",
    )
    fault = cache_fault(saved)
    if fault is not None:
        saved.keeps = False
        saved.about.extra["prefix cache"] = fault
    return saved


def cache_fault(saved: SavedModel) -> Message | None:
    """Try a copied cache that goes on by several tokens against whole prompts, on random ids.

    Returns:
        What is wrong with it; None if the answers agree as far as rounding allows.
    """
    import torch

    window = saved.local_window or getattr(saved.model.config, "sliding_window", None) or 0
    size = max(TRIAL_TOKENS, min(window, TRIAL_WINDOW) + 29)
    size = min(size, saved.context_tokens - sum(TRIAL_SUFFIXES))
    if size < 1:
        return None  # no prompt that fits is long enough for two parts
    ids = np.random.default_rng(0).integers(saved.vocab_size, size=size + 99).tolist()
    most = AGREES if saved.model.dtype in (torch.float32, torch.float64) else AGREES_HALF
    try:
        _, prefix = saved.extend(None, ids[:size])
        for length in TRIAL_SUFFIXES:
            suffix = ids[size : size + length]
            # one question, and one more token as in an answer of two
            going, cache = saved.extend(copy.deepcopy(prefix), suffix)
            again, _ = saved.extend(cache, ids[:1])
            for got, prompt in (
                (going, ids[:size] + suffix),
                (again, [*ids[:size], *suffix, ids[0]]),
            ):
                whole, _ = saved.extend(None, prompt)
                off = float(np.abs(got[-1] - whole[-1]).mean() / max(whole[-1].std(), 1e-9))
                if not off <= most:
                    return message("transformers.cache-differs", off=off, tokens=length)
    except Exception as error:  # noqa: BLE001 - any failure of the cache's own code means no cache
        return message("transformers.cache-fails", why=type(error).__name__)
    return None


def _weights(folder: Path) -> list[Path]:
    """The files of the weights.

    Raises:
        UsageError: the folder, its configuration or its tokenizer is missing, or there are no
            safetensors.
    """
    if not folder.is_dir():
        raise UsageError(message("transformers.no-folder", folder=str(folder)))
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise UsageError(message("transformers.no-file", folder=str(folder), name=name))
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _shards(folder)
    if any(next(folder.glob(pattern), None) for pattern in PICKLES):
        raise UsageError(message("transformers.pickle", folder=str(folder)))
    raise UsageError(message("transformers.no-file", folder=str(folder), name=WEIGHTS))


def _shards(folder: Path) -> list[Path]:
    """The files of weights that are spread over several."""
    try:
        index = json.loads((folder / INDEX).read_text("utf-8"))
        files = [folder / name for name in sorted(set(index["weight_map"].values()))]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        why = str(error)
        raise UsageError(message("transformers.damaged", name=INDEX, why=why)) from error
    for file in files:
        if not file.is_file():
            raise UsageError(message("transformers.no-file", folder=str(folder), name=file.name))
    return files


def _described(folder: Path) -> tuple[Any, Any]:
    """The configuration of a causal language model, and its tokenizer."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **local)
    except Exception as error:
        version = transformers.__version__
        why = _first_line(error)
        raise UsageError(message("transformers.config", version=version, why=why)) from error
    kinds = config.architectures or ["?"]
    if not set(kinds) & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
        raise UsageError(message("transformers.not-causal", kind=kinds[0]))
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
        tokenizer.backend_tokenizer.encode("a")
    except Exception as error:
        name, why = "tokenizer.json", _first_line(error)
        raise UsageError(message("transformers.damaged", name=name, why=why)) from error
    return config, tokenizer


def _filled(folder: Path) -> Any:  # noqa: ANN401 - transformers gives no types
    """The model with all its weights; one that lacks some would be filled with random numbers."""
    import transformers

    auto: Any = transformers.AutoModelForCausalLM  # its types leave out output_loading_info
    try:
        model, found = auto.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype="auto",
            output_loading_info=True,
        )
    except Exception as error:
        why = _first_line(error)
        raise UsageError(message("transformers.damaged", name=WEIGHTS, why=why)) from error
    missing = sorted(found["missing_keys"])
    if missing:
        raise UsageError(message("transformers.incomplete", n=len(missing), name=missing[0]))
    return model


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _local_window(config: Any) -> int | None:  # noqa: ANN401
    """Tokens that stay uncompressed near the query: the sliding window beside compressed entries.

    A model of full and sliding layers alone compresses nothing, so it has no such window.
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    return window if window and kinds - {"full_attention", "sliding_attention"} else None


def _stops(model: Any) -> frozenset[int]:  # noqa: ANN401
    ends = model.generation_config.eos_token_id if model.generation_config else None
    ends = model.config.get_text_config().eos_token_id if ends is None else ends
    return frozenset([] if ends is None else [ends] if isinstance(ends, int) else ends)


def _about(folder: Path, files: Sequence[Path], model: Any) -> About:  # noqa: ANN401
    """Describe the model; the digest of its weights tells two of one name apart."""
    import torch
    import transformers

    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    kind = type(model).__name__
    at_home = folder.resolve() == folder.home().resolve()  # that name may be a person's
    name = kind if at_home else folder.resolve().name
    text = model.config.get_text_config()
    kinds = Counter(getattr(text, "layer_types", None) or ())
    rates = getattr(text, "compress_rates", None) or {}
    layers = ", ".join(f"{n} {layer}" for layer, n in kinds.items())
    extra = {
        "architecture": kind,
        "layers": layers or str(getattr(text, "num_hidden_layers", "?")),
        "compression": ", ".join(f"{layer} {rates[layer]}" for layer in kinds if layer in rates),
        "parameters": f"{sum(weight.numel() for weight in model.parameters()):,}",
        "device": model.device.type,
    }
    return About(
        target=f"transformers:{name}",
        runtime="transformers",
        build=f"transformers {transformers.__version__}, torch {torch.__version__}",
        model=f"{name} {digest.hexdigest()[:12]}",
        quant=str(model.dtype).removeprefix("torch."),
        extra={label: value for label, value in extra.items() if value},
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars or advice from transformers while it loads; both as before afterwards."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
