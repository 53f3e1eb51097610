"""A small decoder whose attention reads raw recent tokens and compressed older ones.

Top to bottom: configuration, rotation, masks, attention, MLP, decoder. Shapes beside the tensors:
``B`` batch, ``T`` tokens, ``N`` entries, ``D`` width, ``H`` query heads, ``G`` KV heads, ``d``
dimensions of a head, ``R`` of which rotate.

In every layer a query sees the last ``local_window`` raw tokens (itself included) and all
completed entries of its compressor, in one softmax. Keys and queries are RMS-normalised. RoPE
turns interleaved pairs of the last ``R`` dimensions of a head; where keys and values are one
tensor the value carries the rotation too, and the output is turned back by the query's own
position, so that what a head reads depends on distance only (DeepSeek-V4).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvphase.lab.compressors import (
    ChunkedConfig,
    Compressor,
    KVShape,
    NoneConfig,
    RMSNorm,
    compressor_from_dict,
    compressor_to_dict,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Attention", "Decoder", "ModelConfig", "attention_mask", "rotate"]

SHARPNESS = 11.0  # scores start within this range whatever the size of a head
LOCALITY = 2.0  # query and key biases on rotating dimensions at the start, see `start_local`
BLOCK = 64  # queries per fused attention call: bounds the masked-out work


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of a decoder and the design of its compressor."""

    vocab_size: int
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 32
    mlp_width: int = 128
    local_window: int = 16
    """Raw tokens that a query sees, itself included; full attention ignores it."""
    rope_dims: int = 16
    """Rotating dimensions at the end of a head: 0 none, ``head_dim`` all."""
    rope_base: float = 500.0
    conv: int = 4
    """Tokens, the current one included, that the convolution after the embedding reads."""
    tied_kv: bool = True
    """One tensor as keys and values, raw and compressed alike."""
    compressor: ChunkedConfig | NoneConfig = field(default_factory=ChunkedConfig)

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit together."""
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads do not share {self.kv_heads} KV heads")
        if self.head_dim % 2 or self.rope_dims % 2 or not 0 <= self.rope_dims <= self.head_dim:
            raise ValueError(
                f"rope_dims ({self.rope_dims}) must be even and at most head_dim"
                f" ({self.head_dim}), which must be even too"
            )

    def build(self, seed: int) -> Decoder:
        """Return a decoder with weights drawn from ``seed``; the global generator is untouched."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return Decoder(self)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready settings."""
        return {**asdict(self), "compressor": compressor_to_dict(self.compressor)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Rebuild a configuration from `to_dict`."""
        return cls(**{**data, "compressor": compressor_from_dict(data["compressor"])})


def rotate(x: Tensor, positions: Tensor, dims: int, base: float) -> Tensor:
    """Turn the last ``dims`` of ``x [..., L, d]`` by RoPE at ``positions [..., L]``.

    Pair ``k`` (dimensions ``2k`` and ``2k+1`` of the rotating part) turns by
    ``position * base ** (-2k / dims)``. Negative positions turn back.
    """
    if dims == 0:
        return x
    rates = base ** (-torch.arange(0, dims, 2) / dims)
    rates = functional.pad(rates, ((x.shape[-1] - dims) // 2, 0))  # [d/2], still pairs first
    angles = positions[..., None] * rates  # [..., L, d/2]
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(torch.unflatten(x, -1, (-1, 2)))
    return torch.flatten(torch.view_as_real(pairs * turns.to(pairs.dtype)), -2)


def pick(x: Tensor, at: Tensor) -> Tensor:
    """Return ``x [B, T, D]`` at the positions ``at [B, Q]``: ``[B, Q, D]``."""
    return x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))


@lru_cache(maxsize=64)
def attention_mask(
    compressor: ChunkedConfig | NoneConfig, length: int, local_window: int
) -> Tensor:
    """Return ``[T, T + N]``: which raw tokens, then which entries, each token may see."""
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    raw = distance >= 0
    window = compressor.raw_window(local_window)
    if window is not None:
        raw &= distance < window
    return torch.cat((raw, compressor.visible(length, compressor.count(length))), 1)


class Attention(nn.Module):
    """Joint attention over the exact local window and the compressed entries."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the projections, the Q/K norms and the compressor."""
        super().__init__()
        self.config = config
        inner = config.heads * config.head_dim
        raw = config.kv_heads * config.head_dim
        self.query: nn.Linear = nn.Linear(config.width, inner)
        self.key: nn.Linear = nn.Linear(config.width, raw)
        self.value: nn.Linear | None = (
            None if config.tied_kv else nn.Linear(config.width, raw, bias=False)
        )
        self.output: nn.Linear = nn.Linear(inner, config.width, bias=False)
        self.query_norm: RMSNorm = RMSNorm(config.head_dim, SHARPNESS * config.head_dim**-0.5)
        self.key_norm: RMSNorm = RMSNorm(config.head_dim)
        shape = KVShape(config.width, config.kv_heads, config.head_dim, config.tied_kv)
        self.compressor: Compressor = config.compressor.build(shape)

    def start_local(self) -> None:
        """Set the query and key biases so that attention starts out preferring near tokens."""
        for projection in (self.query, self.key):
            bias = torch.zeros_like(projection.bias).view(-1, self.config.head_dim)
            bias[:, self.config.head_dim - self.config.rope_dims :: 2] = LOCALITY
            projection.bias.data = bias.flatten()

    def forward(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        """Map the normalised layer input ``x [B, T, D]`` to the residual update ``[B, T, D]``.

        With positions ``at [B, Q]`` only these are computed: ``[B, Q, D]``.
        """
        config, length = self.config, x.shape[1]
        here = torch.arange(length)
        key, value = self._history(x, here)  # [B, G, T+N, d] each
        mask = attention_mask(config.compressor, length, config.local_window)
        if at is not None:
            x, here, mask = pick(x, at), at[:, None], mask[at][:, None]
        query = self._rotate(self.query_norm(self._heads(self.query(x))), here)  # [B, H, T|Q, d]
        attend = self._blocks if at is None else self._attend
        read = attend(query, key, value, mask)
        if config.tied_kv:
            read = self._rotate(read, -here)
        update: Tensor = self.output(read.transpose(1, 2).flatten(2))
        return update

    def _blocks(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Fused attention over blocks of queries, each with the keys it can reach at all."""
        length, reads = query.shape[2], []
        window = self.config.compressor.raw_window(self.config.local_window)
        for start, block in zip(range(0, length, BLOCK), torch.split(query, BLOCK, 2), strict=True):
            end = start + block.shape[2]
            first = 0 if window is None else max(0, start - window + 1)
            entries = self.config.compressor.count(end)
            near, far = slice(first, end), slice(length, length + entries)
            keys = torch.cat((key[:, :, near], key[:, :, far]), 2)
            values = keys
            if key is not value:
                values = torch.cat((value[:, :, near], value[:, :, far]), 2)
            seen = torch.cat((mask[start:end, near], mask[start:end, far]), 1)
            reads.append(self._attend(block, keys, values, seen))
        return torch.cat(reads, 2)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Fused attention of ``H`` query heads over ``G`` KV heads."""
        group = self.config.heads // self.config.kv_heads
        key = key.repeat_interleave(group, 1)
        value = value.repeat_interleave(group, 1)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    def _history(self, x: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values ``[B, G, T+N, d]`` of raw tokens, then of entries."""
        entry_key, entry_value = self.compressor(x)  # [B, G, N, d]
        there = self.config.compressor.positions(entry_key.shape[2])
        raw_key = self._rotate(self.key_norm(self._heads(self.key(x))), here)  # [B, G, T, d]
        key = torch.cat((raw_key, self._rotate(entry_key, there)), 2)
        if self.value is None:
            return key, key
        return key, torch.cat((self._heads(self.value(x)), entry_value), 2)

    def _heads(self, x: Tensor) -> Tensor:
        """Split ``[B, T, heads*d]`` into ``[B, heads, T, d]``."""
        return torch.unflatten(x, -1, (-1, self.config.head_dim)).transpose(1, 2)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotate(x, positions, self.config.rope_dims, self.config.rope_base)


class MLP(nn.Module):
    """SwiGLU: ``down(silu(gate x) * up x)``."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the three projections."""
        super().__init__()
        self.gate: nn.Linear = nn.Linear(config.width, config.mlp_width, bias=False)
        self.up: nn.Linear = nn.Linear(config.width, config.mlp_width, bias=False)
        self.down: nn.Linear = nn.Linear(config.mlp_width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, T, D]`` to ``[B, T, D]``."""
        update: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return update


class Block(nn.Module):
    """One pre-norm layer: attention, then MLP, each added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        """Build both halves and their norms."""
        super().__init__()
        self.attention_norm: RMSNorm = RMSNorm(config.width)
        self.attention: Attention = Attention(config)
        self.mlp_norm: RMSNorm = RMSNorm(config.width)
        self.mlp: MLP = MLP(config)

    def forward(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        """Map the residual stream ``[B, T, D]`` to ``[B, T, D]``, or to ``[B, Q, D]`` at ``at``."""
        update = self.attention(self.attention_norm(x), at)
        x = (x if at is None else pick(x, at)) + update
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Decoder(nn.Module):
    """Token ids to next-token logits; the unembedding is the embedding transposed."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the layers with small weights; outputs shrink with depth."""
        super().__init__()
        self.config = config
        self.embedding: nn.Embedding = nn.Embedding(config.vocab_size, config.width)
        kernel = torch.randn(config.conv, config.width) * config.conv**-0.5
        self.conv: nn.Parameter = nn.Parameter(kernel)
        self.blocks: nn.ModuleList = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm: RMSNorm = RMSNorm(config.width)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.normal_(self.embedding.weight, std=self.config.width**-0.5)
        shrink = (2 * self.config.layers) ** -0.5  # of what is added to the residual stream
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                scale = shrink if name.endswith(("output", "down")) else 1.0
                nn.init.normal_(module.weight, std=scale * module.in_features**-0.5)
            if isinstance(module, Attention):
                module.start_local()

    def hidden(self, ids: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the normalised residual stream ``[B, T, D]`` of ``ids [B, T]`` after all layers.

        With positions ``at [B, Q]`` the last layer computes only these: ``[B, Q, D]``.
        """
        x = self._mix(self.embedding(ids))
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            x = block(x, at if number == last else None)
        out: Tensor = self.norm(x)
        return out

    def _mix(self, x: Tensor) -> Tensor:
        """Add a causal convolution, channel by channel, to the embeddings ``x [B, T, D]``.

        It tells every token what stood just before it. Without it full attention takes thousands
        of steps to find the token before, and lookups start only then.
        """
        length, reach = x.shape[1], self.config.conv
        padded = functional.pad(x, (0, 0, reach - 1, 0))
        for lag in range(reach):
            start = reach - 1 - lag
            x = x + padded[:, start : start + length] * self.conv[lag]
        return x

    def unembed(self, hidden: Tensor) -> Tensor:
        """Turn ``[..., D]`` into logits ``[..., vocab]``."""
        return hidden @ self.embedding.weight.T

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits ``[B, T, vocab]`` for ``ids [B, T]``; row ``t`` predicts ``t + 1``."""
        return self.unembed(self.hidden(ids))
