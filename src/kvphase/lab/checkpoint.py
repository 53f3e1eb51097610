"""Checkpoints: one safetensors file with weights, optimiser and settings, written in one move."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from kvphase.errors import UsageError
from kvphase.lab.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor, nn

    from kvphase.lab.transformer import Decoder

__all__ = [
    "find_checkpoint",
    "load_checkpoint",
    "load_weights",
    "read_checkpoint",
    "under",
    "write_checkpoint",
]

NAME = "checkpoint.safetensors"
SETTINGS = ("model_config", "train_config", "step")


def write_checkpoint(path: Path, tensors: dict[str, Tensor], settings: Mapping[str, Any]) -> None:
    """Write ``tensors`` and JSON-ready ``settings``; a kill or a full disk leaves the old file.

    Raises:
        UsageError: The file could not be written.
    """
    temporary = path.with_suffix(".tmp")
    texts = {name: json.dumps(value) for name, value in settings.items()}
    try:
        save_file(tensors, temporary, metadata=texts)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())  # the new name must not outlive a power cut without its bytes
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        kept = "the one before is intact" if path.exists() else "there is none yet"
        raise UsageError(f"the checkpoint {path} could not be written ({error}); {kept}") from error


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings and tensors of a checkpoint.

    Raises:
        UsageError: The file is missing, is no checkpoint of the lab, or is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()  # it is no mapping: it cannot be iterated over
            tensors = {name: file.get_tensor(name) for name in names}
            texts = file.metadata() or {}
        settings = {name: json.loads(text) for name, text in texts.items()}
    except FileNotFoundError as error:
        raise UsageError(f"there is no checkpoint {path}") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(
            f"{path} is not a checkpoint of kvphase, or is damaged: {error}"
        ) from error
    missing = [name for name in SETTINGS if name not in settings]
    if missing:
        raise UsageError(f"{path} is not a checkpoint of kvphase: it lacks {', '.join(missing)}")
    return {"data_config": {"kind": "lookup"}, **settings}, tensors


def load_checkpoint(path: Path) -> tuple[Decoder, dict[str, Any]]:
    """Read a checkpoint for use: the model and how it was trained.

    Returns:
        The model, and its training settings with ``step`` and ``data`` among them.

    Raises:
        UsageError: As `read_checkpoint`, or the design of its compressor is unknown.
    """
    settings, tensors = read_checkpoint(path)
    model = ModelConfig.from_dict(settings["model_config"]).build(0)
    load_weights(model, under("model", tensors), path)
    trained = {**settings["train_config"], "step": settings["step"]}
    return model, {**trained, "data": settings["data_config"]}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load ``weights`` that came from ``path``.

    Raises:
        UsageError: They are not those of ``model``.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(f"{path} does not hold the weights of its own settings") from error


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, without it."""
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint that ``path`` is or, as the folder of a run, holds.

    Raises:
        UsageError: There is none, or the folder holds several runs.
    """
    if not path.is_dir():
        return path
    if (path / NAME).exists():
        return path / NAME
    inside = sorted(str(file.parent) for file in path.glob(f"*/{NAME}"))
    hint = f"; name one of {', '.join(inside)}" if inside else ""
    raise UsageError(f"there is no {NAME} in {path}{hint}")
