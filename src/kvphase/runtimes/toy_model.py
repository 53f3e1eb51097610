"""Runs the toy models with numpy alone: the decoder of ``kvphase.lab`` with a prefix cache.

The cache of a layer holds the raw keys and values that a later token can still see, the
compressed entries, and the layer inputs that the next entries will pool. Arithmetic is in
float64, so that the cached and the one-shot way agree far below what decides an answer.

Letters: ``n`` new tokens, ``D`` width, ``H`` query heads, ``G`` KV heads, ``d`` head dimensions,
``N`` entries, ``W`` window, ``S`` stride. ``kvphase.lab.transformer`` and
``kvphase.lab.compressors.chunked`` hold the same formulas with their sources.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["ToyCache", "ToyModel"]

Array = NDArray[np.float64]

BLOCK = 64  # new tokens per pass: bounds the score matrix of a long prefill
TEXTS = ("config", "training")  # the entries of a file that are not weights
NEVER = 1 << 62  # a stride that no text completes, a window that no text leaves


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What one layer remembers; arrays are replaced, never written into."""

    keys: Array
    """Raw keys still in reach, ``[G, m, d]``."""
    values: Array
    """Raw values still in reach, ``[G, m, d]``."""
    entry_keys: Array
    """Keys of the completed entries, ``[G, N, d]``."""
    entry_values: Array
    """Values of the completed entries, ``[G, N, d]``."""
    tail: Array
    """Normalised inputs that entries to come will read: the last ``W - 1``, zeros at first."""


@dataclass(slots=True)
class ToyCache:
    """The state after ``length`` tokens."""

    length: int
    embeddings: Array
    """The last embeddings, which the convolution reads again, ``[conv - 1, D]``."""
    layers: tuple[LayerCache, ...]

    def fork(self) -> ToyCache:
        """Return a cache that grows on its own: extending either never changes the other."""
        return replace(self)


def _norm(x: Array, scale: Array) -> Array:
    """Divide by the root mean square over the last axis, then scale."""
    mean_square = np.einsum("...i,...i->...", x, x)[..., None] / x.shape[-1]
    normed: Array = x / np.sqrt(mean_square + 1e-6) * scale
    return normed


def _softmax(scores: Array, axis: int) -> Array:
    """Softmax along ``axis``, in place; every line has at least one finite score."""
    scores -= scores.max(axis, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis, keepdims=True)
    return scores


class Rotation:
    """RoPE on interleaved pairs of the last ``dims`` of ``size`` dimensions."""

    def __init__(self, size: int, dims: int, base: float) -> None:
        """Start with an empty table of turns; the leading pairs stand still."""
        rates = base ** (-np.arange(0, dims, 2, dtype=np.float32) / np.float32(max(dims, 1)))
        self._rates = np.pad(rates, ((size - dims) // 2, 0))  # [d/2]
        self._turns = np.ones((0, size // 2), dtype=np.complex128)

    def __call__(self, x: Array, first: int, step: int = 1, sign: int = 1) -> Array:
        """Turn ``x [heads, L, d]`` by the positions ``first, first + step, ...`` times ``sign``."""
        end = first + step * x.shape[1]
        if end > len(self._turns):
            angles = np.arange(2 * end, dtype=np.float32)[:, None] * self._rates  # fp32 as in torch
            self._turns = np.exp(1j * angles.astype(np.float64))
        turns = self._turns[first:end:step]
        pairs = np.ascontiguousarray(x).view(np.complex128)
        turned: Array = (pairs * (turns if sign > 0 else turns.conj())).view(np.float64)
        return turned


class Branch:
    """One pooled stream of a compressor: ``W`` inputs to one normalised entry."""

    def __init__(
        self, weights: Mapping[str, Array], prefix: str, settings: Mapping[str, Any]
    ) -> None:
        """Take the branch's arrays from ``weights`` by their names under ``prefix``."""
        self.window: int = settings["window"]
        self.gates: str = settings["gates"]
        self.norm: Array = weights[f"{prefix}.norm.scale"]
        self.payload: Array = weights[f"{prefix}.payload"]  # [maps, D, G*d]
        if self.gates != "uniform":
            self.gate: Array = weights[f"{prefix}.gate"]  # [maps, D, G*d or G]
            bias = f"{prefix}.bias"
            self.bias: Array = weights[bias] if settings["gate_bias"] else np.zeros(1)

    def __call__(self, windows: Array, present: NDArray[np.bool_]) -> Array:
        """Pool ``windows [N, W, D]`` where ``present [N, W]`` to entries ``[G, N, d]``."""
        size = len(self.norm)
        payload = self._map(windows, self.payload)  # [N, W, G*d]
        payload = payload.reshape(*payload.shape[:2], -1, size)  # [N, W, G, d]
        if self.gates == "uniform":
            scores = np.zeros((*present.shape, 1))
        else:
            scores = self._map(windows, self.gate) + self.bias
        weights = _softmax(np.where(present[..., None], scores, -np.inf), 1)
        channels = size if self.gates == "vector" else 1
        weights = weights.reshape(*weights.shape[:2], -1, channels)
        return _norm((weights * payload).sum(1), self.norm).swapaxes(0, 1)

    def _map(self, windows: Array, maps: Array) -> Array:
        """Apply ``maps [maps, D, E]``, each to its run of slots: ``[N, W, E]``."""
        count, width, depth = windows.shape
        runs = windows.reshape(count, len(maps), width // len(maps), depth)
        mapped: Array = (runs @ maps).reshape(count, width, -1)
        return mapped


class Layer:
    """One block: attention over the cache, then the MLP."""

    def __init__(
        self, weights: Mapping[str, Array], prefix: str, config: Mapping[str, Any]
    ) -> None:
        """Take the layer's arrays from ``weights`` by their names under ``prefix``."""
        self.heads: int = config["heads"]
        self.kv_heads: int = config["kv_heads"]
        self.size: int = config["head_dim"]
        self.width: int = config["width"]
        self.tied: bool = config["tied_kv"]
        settings = config["compressor"]
        self.compressed: bool = settings["name"] == "chunked"
        self.local_window: int = config["local_window"] if self.compressed else NEVER
        self.window: int = settings["window"] if self.compressed else 1
        self.stride: int = settings["stride"] if self.compressed else NEVER
        self.rotate: Rotation = Rotation(self.size, config["rope_dims"], config["rope_base"])

        def linear(name: str) -> Array:
            return np.ascontiguousarray(weights[f"{prefix}.{name}.weight"].T)

        self.query: Array = linear("attention.query")
        self.key: Array = linear("attention.key")
        self.value: Array = self.key if self.tied else linear("attention.value")
        self.output: Array = linear("attention.output")
        self.gate: Array = linear("mlp.gate")
        self.up: Array = linear("mlp.up")
        self.down: Array = linear("mlp.down")
        self.attention_norm: Array = weights[f"{prefix}.attention_norm.scale"]
        self.query_bias: Array = weights[f"{prefix}.attention.query.bias"]
        self.key_bias: Array = weights[f"{prefix}.attention.key.bias"]
        self.query_norm: Array = weights[f"{prefix}.attention.query_norm.scale"]
        self.key_norm: Array = weights[f"{prefix}.attention.key_norm.scale"]
        self.mlp_norm: Array = weights[f"{prefix}.mlp_norm.scale"]
        streams = () if not self.compressed else ("keys",) if self.tied else ("keys", "values")
        self.branches: list[Branch] = [
            Branch(weights, f"{prefix}.attention.compressor.{name}", settings) for name in streams
        ]

    def start(self) -> LayerCache:
        """Return the cache of no tokens."""
        none = np.zeros((self.kv_heads, 0, self.size))
        return LayerCache(none, none, none, none, np.zeros((self.window - 1, self.width)))

    def __call__(self, x: Array, start: int, cache: LayerCache) -> tuple[Array, LayerCache]:
        """Map the stream ``x [n, D]`` at positions ``start ..``; return it with the new cache."""
        inputs = _norm(x, self.attention_norm)
        cache = self._grow(cache, inputs, start)
        query = self.rotate(
            _norm(self._split(inputs @ self.query + self.query_bias), self.query_norm), start
        )
        keys = np.concatenate((cache.keys, cache.entry_keys), 1)
        values = keys if self.tied else np.concatenate((cache.values, cache.entry_values), 1)
        group = (self.kv_heads, -1, self.size)
        scores = query.reshape(group) @ keys.swapaxes(1, 2) * self.size**-0.5
        scores = scores.reshape(self.heads, len(x), -1)
        scores = np.where(self._mask(start, len(x), cache), scores, -np.inf)
        weights = _softmax(scores, 2).reshape(self.kv_heads, -1, keys.shape[1])
        read = (weights @ values).reshape(self.heads, len(x), self.size)
        if self.tied:  # the values carry the rotation of their positions
            read = self.rotate(read, start, sign=-1)
        x = x + read.swapaxes(0, 1).reshape(len(x), -1) @ self.output
        hidden = _norm(x, self.mlp_norm)
        gate = hidden @ self.gate
        x = x + (gate / (1.0 + np.exp(-gate)) * (hidden @ self.up)) @ self.down
        return x, self._trim(cache)

    def _split(self, x: Array) -> Array:
        """Turn ``[n, heads*d]`` into ``[heads, n, d]``."""
        return x.reshape(len(x), -1, self.size).swapaxes(0, 1)

    def _grow(self, cache: LayerCache, inputs: Array, start: int) -> LayerCache:
        """Append the new tokens' keys and values and the entries that they complete."""
        key = self.rotate(
            _norm(self._split(inputs @ self.key + self.key_bias), self.key_norm), start
        )
        keys = np.concatenate((cache.keys, key), 1)
        tail = np.concatenate((cache.tail, inputs))
        grown = replace(cache, keys=keys, values=keys, tail=tail)
        if not self.tied:
            values = np.concatenate((cache.values, self._split(inputs @ self.value)), 1)
            grown = replace(grown, values=values)
        return self._pool(grown, start, len(inputs))

    def _pool(self, cache: LayerCache, start: int, count: int) -> LayerCache:
        """Append the entries whose spans end within the ``count`` tokens from ``start``."""
        first, end = start // self.stride, (start + count) // self.stride
        if first == end:
            return cache
        begins = np.arange(first, end)[:, None] * self.stride + self.stride - self.window
        positions = begins + np.arange(self.window)  # [N, W], below 0 before the text
        windows = cache.tail[positions - start + self.window - 1]
        new = [branch(windows, positions >= 0) for branch in self.branches]
        keys = self.rotate(new[0], first * self.stride, self.stride)
        entry_keys = np.concatenate((cache.entry_keys, keys), 1)
        if self.tied:
            return replace(cache, entry_keys=entry_keys, entry_values=entry_keys)
        entry_values = np.concatenate((cache.entry_values, new[1]), 1)
        return replace(cache, entry_keys=entry_keys, entry_values=entry_values)

    def _mask(self, start: int, count: int, cache: LayerCache) -> NDArray[np.bool_]:
        """Return which raw keys, then which entries, each new token sees: ``[n, m + N]``."""
        here = np.arange(start, start + count)[:, None]
        distance = here - np.arange(start + count - cache.keys.shape[1], start + count)
        raw = (distance >= 0) & (distance < self.local_window)
        entries = np.arange(cache.entry_keys.shape[1]) < (here + 1) // self.stride
        return np.concatenate((raw, entries), 1)

    def _trim(self, cache: LayerCache) -> LayerCache:
        """Drop what no later token can see."""
        if not self.compressed:
            return replace(cache, tail=cache.tail[:0])
        keep = slice(max(0, cache.keys.shape[1] - self.local_window + 1), None)
        tail = cache.tail[len(cache.tail) - self.window + 1 :]
        keys, values = cache.keys[:, keep], cache.values[:, keep]
        return replace(cache, keys=keys, values=values, tail=tail)


class ToyModel:
    """A toy model: token ids in, next-token logits out."""

    def __init__(self, weights: Mapping[str, Array], config: dict[str, Any]) -> None:
        """Build the model from its arrays and settings; `load` reads both from a file."""
        self.config = config
        self.vocab_size: int = config["vocab_size"]
        self.local_window: int = config["local_window"]
        self._embedding = weights["embedding.weight"]
        self._conv = weights["conv"]  # [conv, D]
        self._norm = weights["norm.scale"]
        self._layers = [Layer(weights, f"blocks.{i}", config) for i in range(config["layers"])]

    @classmethod
    def load(cls, path: Path) -> ToyModel:
        """Read a file that ``kvphase.lab.export`` wrote.

        Raises:
            ValueError: If the file is missing, damaged or not a toy model.
        """
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                config = json.loads(str(file["config"]))
                weights = {name: file[name].astype(float) for name in file if name not in TEXTS}
            return cls(weights, config)
        except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} cannot be read as a toy model: {error}") from error

    def start(self) -> ToyCache:
        """Return the cache of no tokens."""
        none = np.zeros((len(self._conv) - 1, self._embedding.shape[1]))
        return ToyCache(0, none, tuple(layer.start() for layer in self._layers))

    def extend(self, cache: ToyCache, ids: Sequence[int]) -> NDArray[np.float32]:
        """Process ``ids`` after what ``cache`` holds; the cache grows in place.

        Returns:
            Logits ``[len(ids), vocab_size]``; row ``i`` predicts the token after ``ids[i]``.

        Raises:
            ValueError: If an id lies outside the vocabulary; the cache is then unchanged.
        """
        tokens = np.asarray(ids, dtype=np.int64)
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < self.vocab_size:
            raise ValueError(f"token ids must lie in 0..{self.vocab_size - 1}")
        logits = np.empty((len(tokens), self.vocab_size), dtype=np.float32)
        for first in range(0, len(tokens), BLOCK):
            block = slice(first, first + BLOCK)
            logits[block] = self._pass(cache, tokens[block])
        return logits

    def _pass(self, cache: ToyCache, tokens: NDArray[np.int64]) -> Array:
        """Run one block of tokens through all layers."""
        count, reach = len(tokens), len(self._conv)
        embeddings = np.concatenate((cache.embeddings, self._embedding[tokens]))
        x, grown = embeddings[reach - 1 :], []
        for lag, weight in enumerate(self._conv):
            start = reach - 1 - lag
            x = x + embeddings[start : start + count] * weight
        for layer, before in zip(self._layers, cache.layers, strict=True):
            x, after = layer(x, cache.length, before)
            grown.append(after)
        cache.layers, cache.length = tuple(grown), cache.length + count
        cache.embeddings = embeddings[count:]
        logits: Array = _norm(x, self._norm) @ self._embedding.T
        return logits
