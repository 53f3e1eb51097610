r"""DeepSeek-V4: two grids in alternating layers (``models/deepseek_v4`` of transformers).

*Compressed sparse attention* (``csa``) pools ``2m`` tokens every ``m``: the projections are twice
as wide, ``[Ca | Cb]``, and entry ``j`` reads ``Ca`` of window ``j-1``, then ``Cb`` of window ``j``.
*Heavily compressed attention* (``hca``) pools ``m`` tokens every ``m``. Both weigh every channel by
itself, with a learned bias for each slot::

    c_j = RMSNorm( sum_i softmax_i(Z x_i + b_i) * C x_i )        RoPE at jm, seen from jm + m - 1 on

::

    tokens       0 1 2 3 | 4 5 6 7 | 8 9 10 11         m = 4
    csa entry 0  b b b b                               (Ca of a window before the text: none)
    csa entry 1  a a a a   b b b b
    csa entry 2            a a a a   b b b  b
    hca entry 0  # # # # # # # # #  # # # ...          m = 128

One KV head, keys are values, partial RoPE with the inverse rotation of the output: that is
``tied_kv`` of the model; ``sink`` and ``query_rank`` belong to the published model too. Its indexer
keeps the best 512 entries. It gets no gradient from the language-model loss, and while
``index_topk`` is at least ``T / m``, as in any small model, it selects everything: it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvphase.errors import UsageError
from kvphase.lab.compressors.base import Compressor, CompressorConfig, KVShape, design
from kvphase.lab.compressors.chunked import Branch, ChunkedConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DSV4", "DSV4Config", "check_one_tied_head"]

LAYERS = ("csa", "hca", "local")


@design
@dataclass(frozen=True, slots=True)
class DSV4Config(CompressorConfig):
    """Settings of DeepSeek-V4's compression; the defaults are the published rates."""

    name: ClassVar[str] = "dsv4"

    csa: int = 4
    """Stride of compressed sparse attention; its window is twice as long."""
    hca: int = 128
    """Stride and window of heavily compressed attention."""
    pattern: tuple[str, ...] = ("csa", "hca")
    """What the layers are, again and again from layer 0: csa, hca or local (no entries)."""

    def __post_init__(self) -> None:
        """Refuse rates below one and unknown kinds of layers."""
        object.__setattr__(self, "pattern", tuple(self.pattern))
        for field in ("csa", "hca"):
            if getattr(self, field) < 1:
                raise UsageError(f"compressor.{field} must be at least 1")
        if not self.pattern or not set(self.pattern) <= set(LAYERS):
            raise UsageError(f"compressor.pattern must list some of {', '.join(LAYERS)}")

    def check(self, shape: KVShape) -> None:
        """Refuse more than one KV head, or values of their own."""
        check_one_tied_head(self.name, shape)

    def source(self, layer: int) -> int | None:
        """Return the layer itself unless it is local."""
        return None if self._kind(layer) == "local" else layer

    def build(self, shape: KVShape) -> DSV4:
        """Return the module of the layer's kind."""
        if self._kind(shape.layer) == "csa":
            return DSV4(ChunkedConfig(2 * self.csa, self.csa, "vector", "part"), shape)
        return DSV4(ChunkedConfig(self.hca, self.hca, "vector", "shared"), shape)

    def _kind(self, layer: int) -> str:
        return self.pattern[layer % len(self.pattern)]


class DSV4(Compressor):
    """The kernel of both kinds: one stream that serves as keys and values."""

    def __init__(self, kernel: ChunkedConfig, shape: KVShape) -> None:
        """Build the pooled stream of ``kernel``."""
        super().__init__(shape, window=kernel.window, stride=kernel.stride)
        self.keys: Branch = Branch(kernel, shape)

    def forward(self, x: Tensor) -> Tensor:
        """Pool ``x [B, T, D]`` to entries ``[B, N, d]``."""
        entries: Tensor = self.keys(x)
        return entries


def check_one_tied_head(name: str, shape: KVShape) -> None:
    """Refuse a shape that is not one KV head whose keys are its values.

    Raises:
        UsageError: naming the field.
    """
    if shape.kv_heads != 1:
        raise UsageError(f"kv_heads must be 1 with the design {name}, is {shape.kv_heads}")
    if not shape.tied:
        raise UsageError(f"tied_kv must be true with the design {name}: its keys are its values")
