"""A small decoder whose attention reads raw recent tokens and compressed older ones.

Top to bottom: MLP, layer, cache, decoder; `kvphase.lab.model_config` holds the settings and
`kvphase.lab.attention` the attention. Shapes beside the tensors: ``B`` batch, ``T`` tokens, ``n``
new tokens, ``D`` width.

In every layer a query sees the last ``local_window`` raw tokens (itself included) and all
completed entries of its compressor, in one softmax. Keys and queries are RMS-normalised. RoPE
turns interleaved pairs of the last ``R`` dimensions of a head; where keys and values are one
tensor the value carries the rotation too, and the output is turned back by the query's own
position, so that what a head reads depends on distance only (DeepSeek-V4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvphase.lab.attention import Attention, Entries, LayerCache, pick, rotate
from kvphase.lab.compressors import RMSNorm
from kvphase.lab.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Attention", "Block", "Decoder", "KVCache", "ModelConfig", "rotate"]


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
    """One layer: attention, then MLP, each added to the residual stream; norms before or after."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        """Build both halves and their norms."""
        super().__init__()
        self.post_norm: bool = config.post_norm
        self.attention_norm: RMSNorm = RMSNorm(config.width)
        self.attention: Attention = Attention(config, layer)
        self.mlp_norm: RMSNorm = RMSNorm(config.width)
        self.mlp: MLP = MLP(config)

    def forward(
        self,
        x: Tensor,
        known: dict[int, Entries],
        at: Tensor | None = None,
        past: LayerCache | None = None,
        start: int = 0,
    ) -> tuple[Tensor, LayerCache | None]:
        """Map the residual stream ``[B, n, D]`` to itself, or to ``[B, Q, D]`` at ``at``.

        Arguments and results are those of `Attention.forward`, but for the stream.
        """
        inputs = x if self.post_norm else self.attention_norm(x)
        update, after = self.attention(inputs, known, at, past, start)
        x = (x if at is None else pick(x, at)) + update
        if self.post_norm:
            x = self.attention_norm(x)
            return self.mlp_norm(x + self.mlp(x)), after
        return x + self.mlp(self.mlp_norm(x)), after


@dataclass(slots=True)
class KVCache:
    """The state after ``length`` tokens."""

    length: int
    embeddings: Tensor
    """The last embeddings, which the convolution reads again, ``[B, conv - 1, D]``."""
    layers: tuple[LayerCache, ...]

    def fork(self) -> KVCache:
        """Return a cache that grows on its own: extending either never changes the other."""
        return replace(self)


class Decoder(nn.Module):
    """Token ids to next-token logits; the unembedding is the embedding transposed."""

    def __init__(self, config: ModelConfig) -> None:
        """Build the layers with small weights; outputs shrink with depth."""
        super().__init__()
        self.config = config
        self.embedding: nn.Embedding = nn.Embedding(config.vocab_size, config.width)
        self.conv: nn.Parameter | None = None
        if config.conv:
            kernel = torch.randn(config.conv, config.width) * config.conv**-0.5
            self.conv = nn.Parameter(kernel)
        self.blocks: nn.ModuleList = nn.ModuleList(
            Block(config, layer) for layer in range(config.layers)
        )
        self.norm: RMSNorm = RMSNorm(config.width)
        self._initialise()

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The attention of every layer, in order."""
        return tuple(block.attention for block in cast("Iterable[Block]", self.blocks))

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of all compressors, ascending; 1 where nothing is pooled on a grid."""
        made = (attention.compressor for attention in self.attentions)
        found = {one.stride or 1 for one in made if one is not None}
        return tuple(sorted(found or {1}))

    def _initialise(self) -> None:
        nn.init.normal_(self.embedding.weight, std=self.config.width**-0.5)
        shrink = (2 * self.config.layers) ** -0.5  # of what is added to the residual stream
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                scale = shrink if name.endswith(("output", "mlp.down")) else 1.0
                nn.init.normal_(module.weight, std=scale * module.in_features**-0.5)
            if isinstance(module, Attention):
                module.start_local()

    def hidden(self, ids: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the normalised residual stream ``[B, T, D]`` of ``ids [B, T]`` after all layers.

        With positions ``at [B, Q]`` the last layer computes only these: ``[B, Q, D]``.
        """
        x = self.embedding(ids)
        x = self._mix(x, x.new_zeros(len(x), max(0, self.config.conv - 1), x.shape[2]))
        known: dict[int, Entries] = {}
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            x, _ = block(x, known, at if number == last else None)
        out: Tensor = self.norm(x)
        return out

    def _mix(self, x: Tensor, before: Tensor) -> Tensor:
        """Add a causal convolution, channel by channel, to the embeddings ``x [B, n, D]``.

        It tells every token what stood just before it. Without it full attention takes thousands
        of steps to find the token before, and lookups start only then.

        Args:
            x: Embeddings of the new tokens.
            before: The embeddings before them, ``[B, conv - 1, D]``, zeros before the text.
        """
        if self.conv is None:
            return x
        length, reach = x.shape[1], self.config.conv
        padded = torch.cat((before, x), 1)
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

    def start(self, batch: int = 1) -> KVCache:
        """Return the cache of no tokens, for ``batch`` sequences."""
        weight = self.embedding.weight
        none = weight.new_zeros(batch, max(0, self.config.conv - 1), self.config.width)
        layers = tuple(attention.start(batch) for attention in self.attentions)
        return KVCache(0, none, layers)

    @torch.no_grad()
    def extend(self, cache: KVCache, ids: Tensor) -> Tensor:
        """Process ``ids [B, n]`` after what ``cache`` holds; the cache grows in place.

        Returns:
            Logits ``[B, n, vocab]``, the same as those of one evaluation of the whole text.
        """
        embedded = self.embedding(ids)
        x = self._mix(embedded, cache.embeddings)
        known: dict[int, Entries] = {}
        layers = []
        for block, past in zip(self.blocks, cache.layers, strict=True):
            x, after = block(x, known, None, past, cache.length)
            layers.append(after)
        kept = torch.cat((cache.embeddings, embedded), 1)
        cache.embeddings = kept[:, kept.shape[1] - cache.embeddings.shape[1] :]
        cache.layers, cache.length = tuple(layers), cache.length + ids.shape[1]
        return self.unembed(self.norm(x))
