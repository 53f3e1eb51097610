"""Joint attention over raw recent tokens and compressed older ones.

Letters: ``B`` batch, ``n`` new tokens, ``Q`` queries, ``m`` raw tokens in reach, ``N`` entries,
``E`` numbers of an entry, ``D`` width, ``H`` query heads, ``G`` KV heads, ``d`` dimensions of a
head, ``R`` of which rotate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvphase.lab.compressors import Compressor, RMSNorm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.lab.model_config import ModelConfig

__all__ = ["Attention", "Entries", "LayerCache", "pick", "rotate", "visible"]

SHARPNESS = 11.0  # scores start within this range whatever the size of a head
LOCALITY = 2.0  # query and key biases on rotating dimensions at the start, see `start_local`
BLOCK = 64  # queries per fused attention call: bounds the masked-out work


class _Turn(torch.autograd.Function):
    """``x [..., L, d]``, read as pairs, times complex numbers ``turns [.., L, d/2]``.

    Autograd's own way back conjugates and copies the turns at every use.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, turns: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(turns)
        pairs = torch.view_as_complex(torch.unflatten(x, -1, (-1, 2)))
        return torch.flatten(torch.view_as_real(pairs * turns), -2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (turns,) = ctx.saved_tensors
        # in the order that autograd would choose: later sums are the same to the last bit
        return _turned(gradients[0].contiguous(), torch.conj_physical(turns)), None


class _Slices(torch.autograd.Function):
    """Overlapping slices of ``x [B, G, L, d]`` along ``L``, added up in one tensor on the way back.

    Plain slices would each fill a tensor as long as ``x`` with zeros, so that the cost of the local
    window would grow with the square of the text.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, slices: Sequence[slice]) -> tuple[Tensor, ...]:  # noqa: ANN401
        ctx.slices, ctx.shape = slices, x.shape
        return tuple(x[:, :, each] for each in slices)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        whole = gradients[0].new_zeros(ctx.shape)
        # the last first, the order of autograd: sums are the same to the last bit
        for each, gradient in zip(reversed(ctx.slices), reversed(gradients), strict=True):
            whole[:, :, each] += gradient
        return whole, None


def _sliced(x: Tensor, slices: Sequence[slice]) -> tuple[Tensor, ...]:
    """Return the ``slices`` of ``x [B, G, L, d]`` along ``L``."""
    sliced: tuple[Tensor, ...] = _Slices.apply(x, slices)  # type: ignore[no-untyped-call]
    return sliced


def turns_of(positions: Tensor, dims: int, base: float, size: int) -> Tensor:
    """Return RoPE at ``positions [..., L]`` as complex numbers ``[..., L, size/2]``.

    Pair ``k`` of the last ``dims`` dimensions of a head of ``size`` turns by
    ``position * base ** (-2k / dims)``; the pairs before stay as they are.
    """
    rates = base ** (-torch.arange(0, dims, 2, device=positions.device) / dims)
    rates = functional.pad(rates, ((size - dims) // 2, 0))  # [d/2], still pairs first
    angles = positions[..., None] * rates  # [..., L, d/2]
    return torch.polar(torch.ones_like(angles), angles)


def _turned(x: Tensor, turns: Tensor) -> Tensor:
    """Multiply the pairs of ``x [..., L, d]`` by ``turns [..., L, d/2]``."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # half precision has no complex form
    if wide.stride(-1) != 1 or any(
        step % 2 for step in (*wide.stride()[:-1], wide.storage_offset())
    ):
        wide = wide.contiguous()  # a pair must lie at an even place to be read as one number
    kind = torch.complex128 if wide.dtype == torch.float64 else torch.complex64
    turned: Tensor = _Turn.apply(wide, turns.to(kind))  # type: ignore[no-untyped-call]
    return turned.to(x.dtype)


def rotate(x: Tensor, positions: Tensor, dims: int, base: float) -> Tensor:
    """Turn the last ``dims`` of ``x [..., L, d]`` by RoPE at ``positions [..., L]``.

    Pair ``k`` (dimensions ``2k`` and ``2k+1`` of the rotating part) turns by
    ``position * base ** (-2k / dims)``. Negative positions turn back.
    """
    if dims == 0:
        return x
    return _turned(x, turns_of(positions, dims, base, x.shape[-1]))


def _shared(x: Tensor, group: int) -> Tensor:
    """Give every head of ``x [B, G, L, d]`` to ``group`` queries: ``[B, G*group, L, d]``."""
    if x.shape[1] == 1:
        return x.expand(-1, group, -1, -1)  # no copy
    return x.repeat_interleave(group, 1)


def pick(x: Tensor, at: Tensor) -> Tensor:
    """Return ``x [B, T, D]`` at the positions ``at [B, Q]``: ``[B, Q, D]``."""
    return x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))


def visible(here: Tensor, there: Tensor, ends: Tensor, window: int | None, *, tail: bool) -> Tensor:
    """Which raw tokens, then which entries, each query may see.

    Args:
        here: Positions of the queries, ``[Q]`` or ``[B, 1, Q]``.
        there: Positions of the raw tokens, ``[m]``.
        ends: The last token of every entry, ``[N]``, ``[G, N]`` or ``[B, G, N]``.
        window: Raw tokens in sight, the query's own included; ``None`` all. Ignored with ``tail``.
        tail: Raw tokens are in sight since the end of the last entry that is.

    Returns:
        True where seen: ``[Q, m + N]``, or with a batch and KV heads before that.
    """
    distance = here[..., None] - there  # [.., Q, m]
    seen = ends[..., None, :] <= here[..., None]  # [.., Q, N]
    raw = distance >= 0
    if tail:
        ended = torch.where(seen, ends[..., None, :], -1)
        last = functional.pad(ended, (1, 0), value=-1).amax(-1, keepdim=True)  # [.., Q, 1]
        raw = raw & ((there > last) | (distance == 0))
    elif window is not None:
        raw = raw & (distance < window)
    lead = torch.broadcast_shapes(raw.shape[:-1], seen.shape[:-1])  # type: ignore[no-untyped-call]
    return torch.cat((raw.expand(*lead, -1), seen.expand(*lead, -1)), -1)


class History(NamedTuple):
    """Raw history as a layer reads it."""

    key: Tensor
    """Rotated keys ``[B, G, m, d]``."""
    value: Tensor
    """Values ``[B, G, m, d]``; the keys themselves where they are tied."""
    there: Tensor
    """Positions ``[m]``."""


class Entries(NamedTuple):
    """Compressed history as a layer reads it."""

    key: Tensor
    """Rotated keys ``[B, G, N, d]``."""
    value: Tensor
    """Values ``[B, G, N, d]``; the keys themselves where they are tied."""
    ends: Tensor
    """The last token of each, ``[N]``, ``[G, N]`` or ``[B, G, N]``."""


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What one layer remembers; tensors are replaced, never written into."""

    key: Tensor
    """Rotated raw keys still in reach, ``[B, G, m, d]``."""
    value: Tensor
    """Raw values still in reach, ``[B, G, m, d]``."""
    entries: Tensor
    """What the layer's own compressor has written, ``[B, N, E]``."""
    inputs: Tensor
    """Layer inputs that entries to come will read, ``[B, r, D]``."""


class Attention(nn.Module):
    """Attention of one layer, over its raw tokens and over its own or another layer's entries."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        """Build the projections, the Q/K norms and the compressor of layer number ``layer``."""
        super().__init__()
        self.config = config
        self.layer: int = layer
        self.source: int | None = config.compressor.source(layer)
        self.window: int | None = config.compressor.raw_window(config.local_window)
        # a layer without entries has its local window in any case
        self.tail: bool = config.tail and self.source is not None
        inner = config.heads * config.head_dim
        raw = config.kv_heads * config.head_dim
        rank = config.query_rank
        self.query_down: nn.Linear | None = (
            nn.Linear(config.width, rank, bias=False) if rank else None
        )
        self.query_mid: RMSNorm | None = RMSNorm(rank) if rank else None
        self.query: nn.Linear = nn.Linear(rank or config.width, inner)
        self.key: nn.Linear | None = None
        self.value: nn.Linear | None = None
        if self.window != 0:
            self.key = nn.Linear(config.width, raw)
            if not config.tied_kv:
                self.value = nn.Linear(config.width, raw, bias=False)
        self.output: nn.Linear = nn.Linear(inner, config.width, bias=False)
        self.query_norm: nn.Module = nn.Identity()
        self.key_norm: nn.Module = nn.Identity()
        if config.qk_norm:
            self.query_norm = RMSNorm(config.head_dim, SHARPNESS * config.head_dim**-0.5)
            if self.key is not None:
                self.key_norm = RMSNorm(config.head_dim)
        self.sink: nn.Parameter | None = (
            nn.Parameter(torch.zeros(config.heads)) if config.sink else None
        )
        self.compressor: Compressor | None = (
            config.compressor.build(config.shape(layer)) if self.source == layer else None
        )

    def start_local(self) -> None:
        """Set the query and key biases so that attention starts out preferring near tokens."""
        for projection in (self.query, self.key):
            if projection is None:
                continue
            bias = torch.zeros_like(projection.bias).view(-1, self.config.head_dim)
            bias[:, self.config.head_dim - self.config.rope_dims :: 2] = LOCALITY
            projection.bias.data = bias.flatten()

    def start(self, batch: int) -> LayerCache:
        """Return the cache of no tokens."""
        like = self.output.weight
        none = like.new_zeros(batch, self.config.kv_heads, 0, self.config.head_dim)
        entries = inputs = like.new_zeros(batch, 0, 0)
        if self.compressor is not None:
            entries, inputs = self.compressor.start(batch, like)
        return LayerCache(none, none, entries, inputs)

    def forward(
        self,
        x: Tensor,
        known: dict[int, Entries],
        at: Tensor | None = None,
        past: LayerCache | None = None,
        start: int = 0,
    ) -> tuple[Tensor, LayerCache | None]:
        """Map the layer input ``x [B, n, D]`` to the residual update ``[B, n, D]``.

        Args:
            x: Layer inputs of the tokens from position ``start`` on.
            known: Entries by the layer that made them; this layer adds its own.
            at: Only these positions ``[B, Q]`` are computed: ``[B, Q, D]``. Without ``past`` alone.
            past: What the layer remembers of the tokens before.
            start: Number of tokens before.

        Returns:
            The update, and what to remember now where there was a ``past``.
        """
        end = start + x.shape[1]
        here = torch.arange(start, end, device=x.device)
        turns = self._turns(here)
        key, value = self._raw(x, turns, past)  # [B, G, m, d] each
        entries, written, inputs = self._compress(x, known, past, start)
        history = History(key, value, torch.arange(end - key.shape[2], end, device=x.device))
        after = None
        if past is not None:
            drop = self._out_of_reach(key.shape[2], end, entries.ends)
            after = LayerCache(key[:, :, drop:], value[:, :, drop:], written, inputs)
        if at is not None:
            x, here = pick(x, at), at[:, None]
            turns = self._turns(here)
        query = self._turned(self.query_norm(self._heads(self._query(x))), turns)  # [B, H, n|Q, d]
        if self.sink is not None:
            query, history, entries = self._with_sink(self.sink, query, history, entries)
        if at is None and x.device.type == "cpu":
            read = self._blocks(query, history, entries, start)
        else:
            read = self._attend(query, history, entries, here)
        if self.sink is not None:
            read = read[..., :-1]
        if self.config.tied_kv:
            read = self._turned(read, None if turns is None else torch.conj_physical(turns))
        update: Tensor = self.output(read.transpose(1, 2).flatten(2))
        return update, after

    def _query(self, x: Tensor) -> Tensor:
        """Project ``x [B, Q, D]`` to ``[B, Q, H*d]``."""
        if self.query_down is not None and self.query_mid is not None:
            x = self.query_mid(self.query_down(x))
        projected: Tensor = self.query(x)
        return projected

    def _raw(
        self, x: Tensor, turns: Tensor | None, past: LayerCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return raw keys and values ``[B, G, m, d]``, those of ``past`` before the new ones."""
        if self.key is None:
            none = x.new_zeros(len(x), self.config.kv_heads, 0, self.config.head_dim)
            return none, none
        key = self._turned(self.key_norm(self._heads(self.key(x))), turns)
        value = key if self.value is None else self._heads(self.value(x))
        if past is None:
            return key, value
        keys = torch.cat((past.key, key), 2)
        return keys, keys if self.value is None else torch.cat((past.value, value), 2)

    def _compress(
        self, x: Tensor, known: dict[int, Entries], past: LayerCache | None, start: int
    ) -> tuple[Entries, Tensor, Tensor]:
        """Return the entries to read, what was written of them, and the inputs to keep."""
        if self.compressor is None:
            written = inputs = x[:, :0]
            if self.source is not None:
                return known[self.source], written, inputs
            none = x.new_zeros(len(x), self.config.kv_heads, 0, self.config.head_dim)
            return Entries(none, none, none.new_zeros(0).long()), written, inputs
        if past is None:
            written, inputs = self.compressor.compress(x), x[:, :0]
        else:
            written, inputs = self.compressor.extend(past.entries, past.inputs, x, start)
        key, value = self.compressor.expand(written)
        turned = self._turned(key, self._turns(self.compressor.positions(written)))
        tied = self.config.tied_kv
        entries = Entries(turned, turned if tied else value, self.compressor.ends(written))
        known[self.layer] = entries
        return entries, written, inputs

    def _out_of_reach(self, count: int, end: int, ends: Tensor) -> int:
        """Return how many of ``count`` raw tokens no token from ``end`` on can see."""
        if self.tail:
            ended = torch.where(ends < end, ends, -1)
            last = functional.pad(ended, (1, 0), value=-1).amax(-1).min()  # the head furthest back
            return max(0, count - (end - 1 - int(last)))
        return 0 if self.window is None else max(0, count - max(0, self.window - 1))

    def _blocks(self, query: Tensor, history: History, entries: Entries, start: int) -> Tensor:
        """Fused attention over blocks of queries, each with the keys it can reach at all."""
        before = history.key.shape[2] - query.shape[2]  # raw tokens ahead of the first query
        blocks = torch.split(query, BLOCK, 2)
        near: list[slice] = []
        far: list[slice] = []
        for first in range(0, query.shape[2], BLOCK):
            end = min(first + BLOCK, query.shape[2])
            low = 0 if self.window is None or self.tail else before + first - self.window + 1
            near.append(slice(max(0, low), max(0, before + end)))
            count = entries.key.shape[2]
            if entries.ends.dim() == 1:
                count = int((entries.ends < start + end).sum())
            far.append(slice(0, count))
        tied = self.config.tied_kv
        keys, old_keys = _sliced(history.key, near), _sliced(entries.key, far)
        values = keys if tied else _sliced(history.value, near)
        old_values = old_keys if tied else _sliced(entries.value, far)
        reads: list[Tensor] = []
        for number, block in enumerate(blocks):
            raw = History(keys[number], values[number], history.there[near[number]])
            ends = entries.ends[..., far[number]]
            old = Entries(old_keys[number], old_values[number], ends)
            first = start + number * BLOCK
            here = torch.arange(first, first + block.shape[2], device=query.device)
            reads.append(self._attend(block, raw, old, here))
        return torch.cat(reads, 2)

    def _attend(self, query: Tensor, raw: History, entries: Entries, here: Tensor) -> Tensor:
        """Fused attention of ``query [B, H, Q, d]`` over raw tokens and entries of ``G`` heads."""
        seen = visible(here, raw.there, entries.ends, self.window, tail=self.tail)
        key = torch.cat((raw.key, entries.key), 2)
        value = key if self.config.tied_kv else torch.cat((raw.value, entries.value), 2)
        group = self.config.heads // self.config.kv_heads
        key, value = _shared(key, group), _shared(value, group)
        if seen.dim() > 2 and seen.shape[-3] > 1:
            seen = seen.repeat_interleave(group, -3)
        scale = None if self.sink is None else self.config.head_dim**-0.5
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=seen, scale=scale
        )

    def _with_sink(
        self, sink: Tensor, query: Tensor, raw: History, entries: Entries
    ) -> tuple[Tensor, History, Entries]:
        """Add ``exp(sink_h)`` to the denominator of head ``h`` (DeepSeek-V4): one more entry.

        All see it. Its key is zero but for a dimension of its own, where all other keys are zero
        and every query holds its head's sink: so the mask stays boolean, and the fused kernel fast.
        Its value is zero where values are read.
        """
        held = (sink * self.config.head_dim**0.5).to(query.dtype)[:, None, None]
        query = torch.cat((query, held.expand(len(query), -1, query.shape[2], -1)), -1)
        key, value = (functional.pad(x, (0, 1)) for x in (entries.key, entries.value))
        unit = functional.pad(key.new_zeros(key.shape[-1] - 1), (0, 1), value=1.0)
        unit = unit.expand(*key.shape[:2], 1, -1)  # [B, G, 1, d+1]
        ends = functional.pad(entries.ends, (1, 0), value=-1)
        entries = Entries(torch.cat((unit, key), 2), torch.cat((unit, value), 2), ends)
        key, value = (functional.pad(x, (0, 1)) for x in (raw.key, raw.value))
        return query, History(key, value, raw.there), entries

    def _heads(self, x: Tensor) -> Tensor:
        """Split ``[B, T, heads*d]`` into ``[B, heads, T, d]``."""
        return torch.unflatten(x, -1, (-1, self.config.head_dim)).transpose(1, 2)

    def _turns(self, positions: Tensor) -> Tensor | None:
        """Return RoPE at ``positions [..., L]``, or nothing where no dimension rotates."""
        dims, base = self.config.rope_dims, self.config.rope_base
        return turns_of(positions, dims, base, self.config.head_dim) if dims else None

    def _turned(self, x: Tensor, turns: Tensor | None) -> Tensor:
        return x if turns is None else _turned(x, turns)
