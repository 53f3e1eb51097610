"""What a compressor is: the part of an attention layer that shortens the KV history.

Shapes used in this package:

* ``B`` batch, ``T`` tokens, ``N`` compressed entries, ``E`` numbers cached for an entry
* ``D`` model width, ``G`` KV heads, ``d`` dimensions of a head, ``R`` of which rotate

A compressor reads the normalised layer input ``x [B, T, D]`` and writes entries ``[B, N, E]``:
what a server would keep in its cache. `Compressor.expand` turns them into keys and values
``[B, G, N, d]``. The attention layer rotates the keys (RoPE) at `Compressor.positions` and lets
token ``t`` see entry ``j`` from the entry's last token on, ``ends[j] <= t``, in one softmax
together with the raw recent tokens. Decoding with a cache follows from the same two methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from kvphase.errors import UsageError

__all__ = ["REGISTRY", "Compressor", "CompressorConfig", "KVShape", "RMSNorm", "design"]


@dataclass(frozen=True, slots=True)
class KVShape:
    """What the attention layer prescribes to its compressor."""

    width: int
    """Model width ``D``."""
    kv_heads: int
    """KV heads ``G``."""
    head_dim: int
    """Dimensions of one head ``d``."""
    tied: bool
    """Whether one tensor serves as keys and as values."""
    rope_dims: int = 0
    """Rotating dimensions ``R`` at the end of a head."""
    qk_norm: bool = True
    """Whether keys are to be RMS-normalised."""
    layer: int = 0
    """Number of this layer, from 0."""
    layers: int = 1
    """Number of layers of the model."""

    @property
    def size(self) -> int:
        """Numbers in one token's keys, ``G * d``."""
        return self.kv_heads * self.head_dim


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last axis with a learned scale."""

    def __init__(self, size: int, start: float = 1.0) -> None:
        """Start with the scale ``start`` on all ``size`` channels."""
        super().__init__()
        self.scale: nn.Parameter = nn.Parameter(torch.full((size,), start))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x / rms(x) * scale``, the same shape as ``x [..., size]``."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale


class CompressorConfig(ABC):
    """Settings of one design; a subclass is a frozen dataclass with a unique ``name``."""

    # Without slots here those of the dataclasses below would do nothing.
    __slots__ = ()
    name: ClassVar[str]

    @abstractmethod
    def build(self, shape: KVShape) -> Compressor:
        """Return a freshly initialised module for the layer that ``shape`` describes."""

    def check(self, shape: KVShape) -> None:  # noqa: B027 - most designs fit any model
        """Refuse a model that this design cannot serve; called before anything is allocated.

        Raises:
            UsageError: naming the field and the rule.
        """

    def source(self, layer: int) -> int | None:
        """Return the layer whose entries ``layer`` reads: itself, an earlier one, or none."""
        return layer

    def raw_window(self, local_window: int) -> int | None:
        """Return how many raw tokens a query sees, itself included; ``None`` means all."""
        return local_window


C = TypeVar("C", bound=CompressorConfig)
REGISTRY: dict[str, type[CompressorConfig]] = {}
"""Every design that was imported so far, by its name."""


def design(config: type[C]) -> type[C]:
    """Register a configuration class under its ``name``; use it as the outermost decorator.

    Raises:
        UsageError: Another class has that name.
    """
    known = REGISTRY.get(config.name)
    if known is not None and known.__qualname__ != config.__qualname__:
        raise UsageError(f"two compressor designs are called {config.name!r}: rename one")
    REGISTRY[config.name] = config
    return config


class Compressor(nn.Module, ABC):
    """Turns ``x [B, T, D]`` into entries ``[B, N, E]``, and these into keys and values."""

    def __init__(
        self, shape: KVShape, *, window: int, stride: int | None, entry: int | None = None
    ) -> None:
        """Say which tokens an entry reads, and how long it is.

        Args:
            shape: What the attention layer prescribes.
            window: Tokens ``W`` that one entry reads.
            stride: Tokens ``S`` from one entry to the next: entry ``j`` reads no token after
                ``(j+1) * S - 1`` and none before ``(j+1) * S - W``. ``None`` if entries stand on
                no fixed grid: then `positions` and `ends` must be overridden, and decoding with a
                cache compresses the whole text again for every piece (right, but slow).
            entry: Numbers ``E`` of an entry; without it ``G * d`` for keys and, where they are not
                tied, as many for values. Other lengths need an `expand` of their own.
        """
        super().__init__()
        self.shape: KVShape = shape
        self.window: int = window
        self.stride: int | None = stride
        self.entry: int = entry or shape.size * (1 if shape.tied else 2)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return the entries ``[B, N, E]`` that ``x [B, T, D]`` completes, ``N = T // S``.

        It is called only where there is at least one (without a stride: at least one token).
        """

    def compress(self, x: Tensor) -> Tensor:
        """Return the entries ``[B, N, E]`` of a whole text ``x [B, T, D]``, of any length."""
        if x.shape[1] < (self.stride or 1):
            return x.new_zeros(len(x), 0, self.entry)
        entries: Tensor = self(x)
        return entries

    def expand(self, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Turn ``entries [B, N, E]`` into keys and values ``[B, G, N, d]``.

        As written here the first ``G * d`` numbers are keys, the others values; where keys and
        values are tied all are keys, and the same tensor is returned twice.
        """
        parts = torch.unflatten(entries, -1, (-1, self.shape.kv_heads, self.shape.head_dim))
        keys = parts[:, :, 0].transpose(1, 2)  # [B, N, 1 or 2, G, d] to [B, G, N, d]
        return keys, keys if self.shape.tied else parts[:, :, 1].transpose(1, 2)

    def positions(self, entries: Tensor) -> Tensor:
        """Return the RoPE positions of ``entries [B, N, E]``: ``[N]``, ``[G, N]`` or ``[B, G, N]``.

        As written here ``j * S``.
        """
        return self._starts(entries)

    def ends(self, entries: Tensor) -> Tensor:
        """Return the last token that each entry reads, shaped as `positions`, increasing in ``N``.

        As written here ``(j+1) * S - 1``. A token sees an entry from that token on.
        """
        return self._starts(entries) + (self.stride or 0) - 1

    def _starts(self, entries: Tensor) -> Tensor:
        """Return ``j * S`` as ``[N]``."""
        if self.stride is None:
            raise NotImplementedError("without a stride, override positions and ends")
        return torch.arange(entries.shape[1], device=entries.device) * self.stride

    def extend(self, entries: Tensor, kept: Tensor, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Compress ``x [B, n, D]`` that follows ``start`` tokens; what decoding with a cache needs.

        Args:
            entries: Those made so far, ``[B, N, E]``.
            kept: The layer inputs that entries to come read, ``[B, r, D]``, from a stride boundary
                on.
            x: The new layer inputs.
            start: Number of tokens before ``x``.

        Returns:
            All entries now, and the layer inputs to keep.
        """
        inputs, end = torch.cat((kept, x), 1), start + x.shape[1]
        if self.stride is None:
            return self.compress(inputs), inputs
        first = (start - kept.shape[1]) // self.stride  # the entry that `inputs` begin with
        if end // self.stride > start // self.stride:
            made: Tensor = self(inputs)  # the first of them are known, or cut at their left
            entries = torch.cat((entries, made[:, start // self.stride - first :]), 1)
        needed = (end // self.stride + 1) * self.stride - self.window
        begin = max(needed // self.stride, first, 0) * self.stride
        return entries, inputs[:, begin - first * self.stride :]

    def start(self, batch: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return no entries ``[B, 0, E]`` and no kept inputs ``[B, 0, D]``, typed as ``like``."""
        none, inputs = (like.new_zeros(batch, 0, size) for size in (self.entry, self.shape.width))
        return none, inputs
