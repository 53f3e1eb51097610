r"""DeepSeek-V4.1: disjoint pairs at some layers, single tokens at later ones, shared in between.

Entries of stride 2 pool the pair ``2j, 2j + 1`` channel by channel, without overlap and without
slot biases, and are rotated (RoPE) at ``2j``; entries of stride 1 are plain projections::

    c_j = RMSNorm( sum_{i<2} softmax_i(Z x_{2j+i}) * C x_{2j+i} )        c_t = RMSNorm(C x_t)

Only some layers make entries; the layers after them, up to the next such layer, read the same
ones, and the layers before the first see raw tokens alone. The published model has 40 layers, makes
entries at layers 2, 8 and 14 (stride 2) and 20 (stride 1)::

    layer    0 1 | 2 3 4 5 6 7 | 8 ... 13 | 14 ... 19 | 20 ... 39
    reads    raw | entries of 2 | ... of 8 | ... of 14 | ... of 20
    stride         2              2          2           1

A period of two can come only through the layers of stride 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from kvphase.errors import UsageError
from kvphase.lab.compressors.base import CompressorConfig, KVShape, design
from kvphase.lab.compressors.chunked import ChunkedConfig
from kvphase.lab.compressors.dsv4 import DSV4, check_one_tied_head

__all__ = ["DSV41Config"]


@design
@dataclass(frozen=True, slots=True)
class DSV41Config(CompressorConfig):
    """Settings of DeepSeek-V4.1's compression; the defaults fit a model of two layers."""

    name: ClassVar[str] = "dsv41"

    makers: tuple[int, ...] = (0, 1)
    """The layers that make entries, ascending."""
    strides: tuple[int, ...] = (2, 1)
    """The stride of the entries that each of them makes."""

    def __post_init__(self) -> None:
        """Refuse a plan that names no layers, or gives them no strides."""
        for field in ("makers", "strides"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        if not self.makers or any(a >= b for a, b in pairwise((-1, *self.makers))):
            raise UsageError("compressor.makers must list layers in ascending order, from 0 on")
        if len(self.strides) != len(self.makers) or min(self.strides) < 1:
            raise UsageError(
                "compressor.strides must give one stride of at least 1 for each of the"
                f" {len(self.makers)} compressor.makers"
            )

    def check(self, shape: KVShape) -> None:
        """Refuse makers beyond the last layer, more KV heads, or values of their own."""
        check_one_tied_head(self.name, shape)
        if self.makers[-1] >= shape.layers:
            raise UsageError(
                f"compressor.makers: there is no layer {self.makers[-1]} in a model of"
                f" {shape.layers} layers (layers)"
            )

    def source(self, layer: int) -> int | None:
        """Return the last maker up to ``layer``, or none before the first."""
        return max((maker for maker in self.makers if maker <= layer), default=None)

    def build(self, shape: KVShape) -> DSV4:
        """Return the module of a layer that makes entries."""
        stride = self.strides[self.makers.index(shape.layer)]
        # one token needs no weight
        kernel = ChunkedConfig(
            stride, stride, "uniform" if stride == 1 else "vector", "shared", gate_bias=False
        )
        return DSV4(kernel, shape)
