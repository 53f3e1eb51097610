"""Designs beyond one fixed grid: each head its own, or boundaries found in the text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from kvphase.lab.compressors import ChunkedConfig, Compressor, CompressorConfig, KVShape
from kvphase.lab.verify import verify
from lab.family import GATES, MAPS, SMALL


@dataclass(frozen=True, slots=True)
class StaggeredConfig(CompressorConfig):
    """Head ``h`` of ``G`` pools ``jS - o .. jS + S - 1 - o`` with ``o = h S // G``."""

    name: ClassVar[str] = "staggered"
    stride_: int = 4

    def build(self, shape: KVShape) -> Compressor:
        """Build it."""
        return Staggered(self.stride_, shape)


class Staggered(Compressor):
    """Means of chunks that begin at another token in each head."""

    def __init__(self, size: int, shape: KVShape) -> None:
        super().__init__(shape, window=size, stride=None)
        self.size = size
        self.offsets = [head * size // shape.kv_heads for head in range(shape.kv_heads)]
        self.map = nn.Linear(shape.width, shape.size)

    def forward(self, x: Tensor) -> Tensor:
        """Pool; the last entry of a head may be open: `ends` hides it."""
        count = (x.shape[1] + self.size - 1) // self.size + 1
        heads = []
        for head, payload in enumerate(self.map(x).chunk(self.shape.kv_heads, -1)):
            offset = self.offsets[head]
            behind = count * self.size - offset - x.shape[1]
            padded = nn.functional.pad(payload, (0, 0, offset, behind))
            heads.append(torch.unflatten(padded, 1, (count, self.size)).mean(2))
        return torch.cat(heads, -1)  # [B, N, G*d]

    def positions(self, entries: Tensor) -> Tensor:
        """Where each head's chunks begin, ``[G, N]``."""
        begins = torch.arange(entries.shape[1]) * self.size
        return (begins - torch.tensor(self.offsets)[:, None]).clamp(min=0)

    def ends(self, entries: Tensor) -> Tensor:
        """Where each head's chunks end, ``[G, N]``."""
        begins = torch.arange(entries.shape[1]) * self.size
        return begins - torch.tensor(self.offsets)[:, None] + self.size - 1


@dataclass(frozen=True, slots=True)
class SegmentsConfig(CompressorConfig):
    """Segments that end where the text says so."""

    name: ClassVar[str] = "segments"

    def build(self, shape: KVShape) -> Compressor:
        """Build it."""
        return Segments(shape)


class Segments(Compressor):
    """Means of segments; a segment ends where the first channel is positive."""

    def __init__(self, shape: KVShape) -> None:
        super().__init__(shape, window=1, stride=None, entry=shape.size + 1)
        self.map = nn.Linear(shape.width, shape.size)

    def forward(self, x: Tensor) -> Tensor:
        """Entries with the segment's end behind them, ``[B, N, G*d + 1]``."""
        length = x.shape[1]
        places = torch.arange(length)
        rows = []
        for payload, ending in zip(self.map(x), x[..., 0] > 0, strict=True):
            stops = [*places[ending].tolist()]
            begins = [0, *(stop + 1 for stop in stops)]
            row = [payload[a : b + 1].mean(0) for a, b in zip(begins, stops, strict=False)]
            row += [payload.new_zeros(self.shape.size)] * (length - len(row))
            ends = payload.new_tensor(stops + [10**6] * (length - len(stops)))
            rows.append(torch.cat((torch.stack(row), ends[:, None]), 1))
        return torch.stack(rows)

    def expand(self, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Leave out the ends."""
        return super().expand(entries[..., :-1])

    def ends(self, entries: Tensor) -> Tensor:
        """The ends that the entries carry, ``[B, 1, N]``."""
        return entries[:, None, :, -1].long()

    positions = ends


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("design", [StaggeredConfig(), StaggeredConfig(6), SegmentsConfig()])
def test_grids_of_ones_own_are_causal_and_cached(design: CompressorConfig, tail: bool) -> None:
    assert verify(replace(SMALL, compressor=design, tail=tail, sink=tail)) == []


@settings(deadline=None, max_examples=12)
@given(
    st.integers(1, 9),
    st.integers(0, 9),
    st.sampled_from(GATES),
    st.sampled_from(MAPS[::2]),
    st.integers(1, 8),
    st.fixed_dictionaries({key: st.booleans() for key in ("tail", "tied_kv", "qk_norm", "sink")}),
)
def test_any_window_and_stride_work(
    stride: int, more: int, gates: str, maps: str, local: int, options: dict[str, bool]
) -> None:
    design = ChunkedConfig(stride + more, stride, gates, maps)  # type: ignore[arg-type]
    config = replace(SMALL, layers=1, compressor=design, local_window=local)
    assert verify(replace(config, **options)) == []  # type: ignore[arg-type]
