"""No compression: full attention over raw tokens, the control of every comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvphase.lab.compressors.base import Compressor, CompressorConfig, KVShape, design

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NoCompression", "NoneConfig"]


@design
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


class NoCompression(Compressor):
    """Writes zero entries, so that attention runs over raw tokens alone."""

    def __init__(self, shape: KVShape) -> None:
        """Read no token."""
        super().__init__(shape, window=1, stride=None)

    def forward(self, x: Tensor) -> Tensor:
        """Return no entries ``[B, 0, E]``."""
        return x.new_zeros(x.shape[0], 0, self.shape.size * (1 if self.shape.tied else 2))

    def extend(self, entries: Tensor, kept: Tensor, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Return what there was: nothing."""
        return entries, kept

    def positions(self, entries: Tensor) -> Tensor:
        """Return an empty vector."""
        return entries.new_zeros(entries.shape[1]).long()

    def ends(self, entries: Tensor) -> Tensor:
        """Return an empty vector."""
        return self.positions(entries)
