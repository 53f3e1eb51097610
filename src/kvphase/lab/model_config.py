"""Sizes and options of a decoder, and what cannot work among them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from kvphase.errors import UsageError
from kvphase.lab.compressors import (
    ChunkedConfig,
    CompressorConfig,
    KVShape,
    compressor_from_dict,
    compressor_to_dict,
)
from kvphase.lab.fields import fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvphase.lab.transformer import Decoder

__all__ = ["ModelConfig"]

SIZES = ("vocab_size", "layers", "width", "heads", "kv_heads", "head_dim", "mlp_width")


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
    """Tokens, the current one included, that the convolution after the embedding reads; 0: none."""
    tied_kv: bool = True
    """One tensor as keys and values, raw and compressed alike."""
    compressor: CompressorConfig = field(default_factory=ChunkedConfig)
    tail: bool = False
    """Instead of the fixed local window a query sees the raw tokens since the last completed
    entry, and itself."""
    qk_norm: bool = True
    """RMS-normalised queries and keys, raw and compressed alike."""
    post_norm: bool = False
    """Norms after each half of a layer, ``x = norm(x + half(x))``, instead of before it."""
    sink: bool = False
    """A learned number for each query head in the denominator of its softmax."""
    query_rank: int = 0
    """Queries through a normalised bottleneck of this many numbers (DeepSeek); 0: directly."""

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit together."""
        for name in (*SIZES, "local_window"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, is {getattr(self, name)}")
        for name in ("conv", "query_rank"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must not be negative, is {getattr(self, name)}")
        if self.heads % self.kv_heads:
            raise UsageError(
                f"kv_heads: {self.heads} query heads (heads) do not share {self.kv_heads} KV heads"
            )
        if self.head_dim % 2 or self.rope_dims % 2 or not 0 <= self.rope_dims <= self.head_dim:
            raise UsageError(
                f"rope_dims ({self.rope_dims}) must be even and at most head_dim"
                f" ({self.head_dim}), which must be even too"
            )
        for layer in range(self.layers):
            self.compressor.check(self.shape(layer))

    def shape(self, layer: int) -> KVShape:
        """Return what the compressor of ``layer`` is told."""
        return KVShape(
            width=self.width,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            tied=self.tied_kv,
            rope_dims=self.rope_dims,
            qk_norm=self.qk_norm,
            layer=layer,
            layers=self.layers,
        )

    def build(self, seed: int, device: str = "cpu") -> Decoder:
        """Return a decoder with weights drawn from ``seed``; the global generator is untouched.

        On the device ``meta`` nothing is allocated: for shapes and counts alone.
        """
        from kvphase.lab.transformer import Decoder  # late: it is built from these settings

        with torch.random.fork_rng(devices=[]), torch.device("cpu" if device != "meta" else device):
            torch.manual_seed(seed)
            return Decoder(self).to(device)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready settings."""
        return {**asdict(self), "compressor": compressor_to_dict(self.compressor)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelConfig:
        """Rebuild a configuration from `to_dict`.

        Raises:
            UsageError: A setting is unknown, of another type, or does not fit the others.
        """
        settings = dict(data)
        if isinstance(settings.get("compressor"), dict):
            settings["compressor"] = compressor_from_dict(settings["compressor"])
        return fill(cls, settings, "model")
