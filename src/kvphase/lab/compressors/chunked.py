r"""Chunked compression: one entry per stride, pooled from a window of tokens.

Entry ``j`` reads the ``W`` tokens ``jS+S-W .. jS+S-1``, so that its span ends on a stride
boundary, and is visible to token ``t`` from the span's last token on, ``j < (t+1) // S``::

    tokens   0 1 2 3 4 5 6 7 8 9 10 11        W = 8, S = 4
    entry 0  # # # #                          (its missing left half is masked)
    entry 1  # # # # # # # #
    entry 2          # # # # # # #  #

Within its window an entry is a softmax-weighted mean over the slots ``i``::

    s_i = Z_i x_i + b_i      alpha = softmax_i(s)      c = RMSNorm(sum_i alpha_i * (C_i x_i))

The scalar form with maps per slot is the base design of Zhu et al., arXiv 2609.36322; the vector
form with ``W = 2S``, maps shared inside each half of the window and tied keys and values is the
kernel of DeepSeek-V4's compressed sparse attention. Entries are rotated (RoPE) at position
``jS``: the start of the span when ``W = S``, its middle when ``W = 2S``, as in DeepSeek-V4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvphase.errors import UsageError
from kvphase.lab.compressors.base import Compressor, CompressorConfig, KVShape, RMSNorm, design

__all__ = ["Branch", "Chunked", "ChunkedConfig"]

GATES = ("vector", "scalar", "uniform")
MAPS = ("slot", "part", "shared")


@design
@dataclass(frozen=True, slots=True)
class ChunkedConfig(CompressorConfig):
    """Settings of chunked compression; the defaults are DeepSeek-V4's kernel."""

    name: ClassVar[str] = "chunked"

    window: int = 8
    """Tokens ``W`` that one entry reads."""
    stride: int = 4
    """Tokens ``S`` from one entry to the next."""
    gates: Literal["vector", "scalar", "uniform"] = "vector"
    """One score per channel, one per KV head, or the plain mean."""
    maps: Literal["slot", "part", "shared"] = "part"
    """Own maps for every slot, for every stride-long part of the window, or one for all."""
    gate_bias: bool = True
    """Whether every slot has a learned score offset ``b_i``."""
    value_norm: bool = True
    """Whether values with their own parameters are RMS-normalised as keys are."""

    def __post_init__(self) -> None:
        """Refuse settings that describe no compressor."""
        if not 1 <= self.stride <= self.window:
            raise UsageError(
                "compressor.stride must lie between 1 and compressor.window"
                f" ({self.window}), is {self.stride}"
            )
        for field, known in (("gates", GATES), ("maps", MAPS)):
            if getattr(self, field) not in known:
                raise UsageError(
                    f"compressor.{field} must be one of {', '.join(known)},"
                    f" is {getattr(self, field)!r}"
                )
        if self.maps == "part" and self.window % self.stride:
            raise UsageError(
                f"compressor.maps: maps per part need a window ({self.window}) that is a multiple"
                f" of the stride ({self.stride})"
            )

    @property
    def map_count(self) -> int:
        """Number of separate payload (and gate) maps."""
        return {"slot": self.window, "part": self.window // self.stride, "shared": 1}[self.maps]

    def build(self, shape: KVShape) -> Chunked:
        """Return a freshly initialised module with these settings."""
        return Chunked(self, shape)


class Branch(nn.Module):
    """One pooled stream: payload maps, gate maps and gate biases of keys or of values."""

    def __init__(self, config: ChunkedConfig, shape: KVShape, *, norm: bool = True) -> None:
        """Draw the maps at ``1 / sqrt(D)`` and start all biases at zero."""
        super().__init__()
        self.config: ChunkedConfig = config
        self.shape: KVShape = shape
        size = shape.kv_heads * shape.head_dim
        gate_size = size if config.gates == "vector" else shape.kv_heads
        scale = shape.width**-0.5
        count = config.map_count
        # payload maps [maps, D, G*d], gate maps [maps, D, G*d or G], biases [W, G*d or G]
        self.payload: nn.Parameter = nn.Parameter(torch.randn(count, shape.width, size) * scale)
        if config.gates != "uniform":
            self.gate: nn.Parameter = nn.Parameter(
                torch.randn(count, shape.width, gate_size) * scale
            )
            if config.gate_bias:
                self.bias: nn.Parameter = nn.Parameter(torch.zeros(config.window, gate_size))
        self.norm: nn.Module = RMSNorm(shape.head_dim) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Pool ``x [B, T, D]`` to normalised entries ``[B, N, G*d]``."""
        heads = (self.shape.kv_heads, self.shape.head_dim)
        payload = torch.unflatten(self._slots(x, self.payload), -1, heads)  # [B, N, W, G, d]
        entries = (self._weights(x) * payload).sum(2)  # [B, N, G, d]
        normed: Tensor = self.norm(entries)
        return normed.flatten(2)

    def _weights(self, x: Tensor) -> Tensor:
        """Return the slot weights ``[B or 1, N, W, G or 1, d or 1]``, summing to one over ``W``."""
        window, stride = self.config.window, self.config.stride
        count = x.shape[1] // stride
        slots = torch.arange(window, device=x.device)
        starts = torch.arange(count, device=x.device) * stride + stride - window
        absent = (starts[:, None] + slots < 0)[None, :, :, None]  # [1, N, W, 1]
        if self.config.gates == "uniform":
            scores = x.new_zeros(1, count, window, 1)
        else:
            scores = self._slots(x, self.gate)
            if self.config.gate_bias:
                scores = scores + self.bias
        weights = scores.masked_fill(absent, float("-inf")).softmax(2)
        groups = 1 if self.config.gates == "uniform" else self.shape.kv_heads
        return torch.unflatten(weights, -1, (groups, -1))

    def _slots(self, x: Tensor, maps: Tensor) -> Tensor:
        """Apply ``maps [maps, D, E]``, each to its run of slots: ``[B, N, W, E]``."""
        window, stride = self.config.window, self.config.stride
        count, parts = x.shape[1] // stride, -(-window // stride)
        # reshape and shift: strides [B, parts - 1 + N, S, D], the first ones before the text
        whole = functional.pad(x[:, : count * stride], (0, 0, (parts - 1) * stride, 0))
        strides = torch.unflatten(whole, 1, (parts - 1 + count, stride))
        windows = torch.cat([strides[:, part : part + count] for part in range(parts)], 2)
        windows = windows[:, :, parts * stride - window :]  # [B, N, W, D]
        runs = torch.unflatten(windows, 2, (len(maps), window // len(maps)))
        return torch.einsum("bnmsd,mde->bnmse", runs, maps).flatten(2, 3)


class Chunked(Compressor):
    """Chunked compression of keys and values, tied or each with its own parameters."""

    def __init__(self, config: ChunkedConfig, shape: KVShape) -> None:
        """Build one branch where keys and values are tied, two otherwise."""
        super().__init__(shape, window=config.window, stride=config.stride)
        self.keys: Branch = Branch(config, shape, norm=shape.qk_norm)
        self.values: Branch | None = (
            None if shape.tied else Branch(config, shape, norm=config.value_norm)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return keys, then values where they are not tied: ``[B, N, G*d or 2*G*d]``."""
        keys: Tensor = self.keys(x)
        return keys if self.values is None else torch.cat((keys, self.values(x)), -1)
