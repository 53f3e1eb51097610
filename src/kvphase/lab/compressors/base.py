"""What a compressor is: the part of an attention layer that shortens the KV history.

Shapes used in this package:

* ``B`` batch, ``T`` tokens, ``N`` compressed entries, ``D`` model width
* ``G`` KV heads, ``d`` dimensions of a head

A compressor reads the normalised layer input ``x [B, T, D]`` and writes keys and values
``[B, G, N, d]``. The attention layer rotates the keys (RoPE) at ``positions(N)`` and lets token
``t`` see entry ``j`` where ``visible(T, N)[t, j]`` is true, in one softmax together with the
exact local window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

__all__ = ["Compressor", "CompressorConfig", "KVShape", "RMSNorm"]


@dataclass(frozen=True, slots=True)
class KVShape:
    """Sizes that the attention layer prescribes to its compressor."""

    width: int
    """Model width ``D``."""
    kv_heads: int
    """KV heads ``G``."""
    head_dim: int
    """Dimensions of one head ``d``."""
    tied: bool
    """Whether one tensor serves as keys and as values."""


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

    name: ClassVar[str]

    @abstractmethod
    def build(self, shape: KVShape) -> Compressor:
        """Return a freshly initialised module with these settings."""

    @abstractmethod
    def raw_window(self, local_window: int) -> int | None:
        """Return how many raw tokens a query sees, itself included; ``None`` means all."""

    @abstractmethod
    def count(self, length: int) -> int:
        """Return the number of entries that ``length`` tokens have completed."""

    @abstractmethod
    def positions(self, count: int) -> Tensor:
        """Return the RoPE positions ``[count]`` of the first ``count`` entries."""

    @abstractmethod
    def visible(self, length: int, count: int) -> Tensor:
        """Return the boolean mask ``[length, count]``: may token ``t`` see entry ``j``."""


class Compressor(nn.Module, ABC):
    """Turns ``x [B, T, D]`` into compressed keys and values ``[B, G, N, d]``."""

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return normalised keys and values; the same tensor twice where K and V are tied."""
