"""No compression: full attention over raw tokens, the control of every comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kvphase.lab.compressors.base import Compressor, CompressorConfig, KVShape

__all__ = ["NoCompression", "NoneConfig"]


@dataclass(frozen=True, slots=True)
class NoneConfig(CompressorConfig):
    """Every token stays in the cache as it is; there are no entries and no local window."""

    name: ClassVar[str] = "none"

    def build(self, shape: KVShape) -> NoCompression:
        """Return the module that writes no entries."""
        return NoCompression(shape)

    def raw_window(self, local_window: int) -> int | None:
        """Return ``None``: a query sees all raw tokens up to itself."""
        return None

    def count(self, length: int) -> int:
        """Return 0."""
        return 0

    def positions(self, count: int) -> Tensor:
        """Return an empty vector."""
        return torch.zeros(count, dtype=torch.long)

    def visible(self, length: int, count: int) -> Tensor:
        """Return an empty mask ``[length, 0]``."""
        return torch.zeros(length, count, dtype=torch.bool)


class NoCompression(Compressor):
    """Writes zero entries, so that attention runs over raw tokens alone."""

    def __init__(self, shape: KVShape) -> None:
        """Remember the shape of the empty entries."""
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return two empty tensors ``[B, G, 0, d]``."""
        empty = x.new_zeros(x.shape[0], self.shape.kv_heads, 0, self.shape.head_dim)
        return empty, empty
