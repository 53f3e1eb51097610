"""Write a trained model as one ``.npz`` file that numpy alone can read and run.

The file holds the weights as fp16 under their torch names and two JSON strings: ``config`` (the
model's settings) and ``training`` (those of its training). Nothing in it is pickled, so
``numpy.load(..., allow_pickle=False)`` reads it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kvphase.lab.transformer import Decoder, ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["export", "load_exported"]


def export(model: Decoder, path: Path, training: Mapping[str, Any] | None = None) -> None:
    """Write ``model`` to ``path``.

    Args:
        model: The trained model; its weights are rounded to fp16 in the file only.
        path: File to write, by convention ``NAME.npz``.
        training: JSON-ready settings of the training, kept for the record.

    Raises:
        ValueError: If a weight is not finite in fp16.
    """
    arrays: dict[str, Any] = {}
    for name, weight in model.state_dict().items():
        half = weight.detach().to(torch.float16).numpy()
        if not np.isfinite(half).all():
            raise ValueError(f"the weight {name} is not finite in fp16")
        arrays[name] = half
    arrays["config"] = np.array(json.dumps(model.config.to_dict()))
    arrays["training"] = np.array(json.dumps(dict(training or {})))
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_exported(path: Path) -> Decoder:
    """Read an exported model back into torch, with exactly the fp16 weights of the file."""
    with np.load(path, allow_pickle=False) as file:
        model = ModelConfig.from_dict(json.loads(str(file["config"]))).build(0)
        names = model.state_dict().keys()
        model.load_state_dict({name: torch.from_numpy(file[name]).float() for name in names})
    return model
