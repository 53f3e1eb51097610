r"""Multi-head latent attention: every token is kept, but as one short latent.

The cache holds, for each token, a latent and the rotating part of the keys, which all heads
share; keys and values of every head are projected up from the latent when they are read::

    c_t = RMSNorm(W_down x_t)                        [L]        cached
    r_t = W_rope x_t                                 [R]        cached, rotated at t when read
    k_t = [W_key c_t | r_t]     v_t = W_value c_t    [G, d] each

(DeepSeek-V2, arXiv 2405.04434, section 2.1.) Nothing is pooled over tokens, so there is no phase:
a control that compresses as much as chunked designs do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from kvphase.errors import UsageError
from kvphase.lab.compressors.base import Compressor, CompressorConfig, KVShape, RMSNorm, design

__all__ = ["Latent", "MLAConfig"]


@design
@dataclass(frozen=True, slots=True)
class MLAConfig(CompressorConfig):
    """Settings of latent attention; the model's ``rope_dims`` are the decoupled rotating part."""

    name: ClassVar[str] = "mla"

    latent: int = 32
    """Numbers ``L`` of one token's latent."""

    def __post_init__(self) -> None:
        """Refuse a latent of no size."""
        if self.latent < 1:
            raise UsageError(f"compressor.latent must be at least 1, is {self.latent}")

    def check(self, shape: KVShape) -> None:
        """Refuse tied keys and values, and keys that rotate as a whole."""
        if shape.tied:
            raise UsageError(
                "tied_kv must be false with the design mla: it projects keys and values apart"
            )
        if shape.rope_dims >= shape.head_dim:
            raise UsageError(
                f"rope_dims ({shape.rope_dims}) must be below head_dim ({shape.head_dim}) with the"
                " design mla: what rotates does not come from the latent"
            )

    def build(self, shape: KVShape) -> Latent:
        """Return a freshly initialised module."""
        return Latent(self, shape)

    def raw_window(self, local_window: int) -> int | None:
        """Return 0: raw keys and values are never kept."""
        return 0 * local_window


class Latent(Compressor):
    """One entry a token: its latent and its shared rotating key."""

    def __init__(self, config: MLAConfig, shape: KVShape) -> None:
        """Build the projection down and those up to the keys and values of all heads."""
        super().__init__(shape, window=1, stride=1, entry=config.latent + shape.rope_dims)
        still = shape.head_dim - shape.rope_dims
        self.latent: int = config.latent
        self.down: nn.Linear = nn.Linear(shape.width, config.latent + shape.rope_dims, bias=False)
        self.norm: RMSNorm = RMSNorm(config.latent)
        self.key: nn.Linear = nn.Linear(config.latent, shape.kv_heads * still, bias=False)
        self.value: nn.Linear = nn.Linear(config.latent, shape.size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return latents and rotating parts ``[B, T, L + R]`` of ``x [B, T, D]``."""
        latent, rotating = self.down(x).tensor_split([self.latent], -1)
        return torch.cat((self.norm(latent), rotating), -1)

    def expand(self, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Project ``entries [B, T, L + R]`` up to keys and values ``[B, G, T, d]``."""
        latent, rotating = entries.tensor_split([self.latent], -1)
        heads = self.shape.kv_heads
        still = torch.unflatten(self.key(latent), -1, (heads, -1)).transpose(1, 2)
        shared = rotating[:, None].expand(-1, heads, -1, -1)  # [B, G, T, R]
        value = torch.unflatten(self.value(latent), -1, (heads, -1)).transpose(1, 2)
        return torch.cat((still, shared), -1), value
