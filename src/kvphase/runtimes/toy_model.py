"""Runs the toy models with numpy alone: the decoder of ``kvphase.lab`` with a prefix cache.

The cache of a layer holds the raw keys and values that a later token can still see, the
compressed entries, and the layer inputs that the next entry will pool. Arithmetic is in float64,
so that the cached and the one-shot way agree far below what decides an answer.

Letters: ``n`` new tokens, ``D`` width, ``H`` query heads, ``G`` KV heads, ``d`` head dimensions,
``W`` window, ``S`` stride. The formulas stand in ``kvphase.lab.transformer`` and
``kvphase.lab.compressors.chunked``.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ToyCache", "ToyModel"]

Array = NDArray[np.float64]

BLOCK = 256  # new tokens per pass: bounds the score matrix of a long prefill


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What one layer remembers; arrays are replaced, never written into."""

    raw: tuple[Array, Array]
    """Keys and values of the raw tokens still in reach, ``[G, m, d]``."""
    entries: tuple[Array, Array]
    """Keys and values of the completed entries, ``[G, N, d]``."""
    tail: Array
    """Normalised layer inputs that entries to come will read, ``[up to W-1, D]``."""


@dataclass(slots=True)
class ToyCache:
    """The state after ``length`` tokens."""

    length: int
    layers: tuple[LayerCache, ...]

    def fork(self) -> ToyCache:
        """Return a cache that grows on its own; extending either never changes the other."""
        return replace(self)


class Weights:
    """The arrays of a model file in float64, by name."""

    def __init__(self, arrays: dict[str, NDArray[np.float16]], prefix: str = "") -> None:
        """Keep the arrays whose names start with ``prefix``, without it."""
        self._arrays = {
            name.removeprefix(prefix): np.ascontiguousarray(array, dtype=np.float64)
            for name, array in arrays.items()
            if name.startswith(prefix)
        }

    def __getitem__(self, name: str) -> Array:
        """Return one array."""
        return self._arrays[name]


def _norm(x: Array, scale: Array) -> Array:
    """RMS normalisation over the last axis."""
    out: Array = x / np.sqrt(np.einsum("...i,...i->...", x, x) / x.shape[-1] + 1e-6)[..., None]
    return out * scale


def _softmax(scores: Array, axis: int) -> Array:
    """Softmax; at least one score along ``axis`` is finite."""
    out: Array = np.exp(scores - scores.max(axis, keepdims=True))
    out /= out.sum(axis, keepdims=True)
    return out
