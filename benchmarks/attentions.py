"""Attentions that `benchmarks/lab.py` compares: the oracle, and transformers' DeepSeek-V4."""

from __future__ import annotations

import copy
import importlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - nothing here runs without it
from torch import Tensor, nn  # noqa: TID253

from kvphase.lab.compressors import ChunkedConfig, DSV4Config
from kvphase.lab.model_config import ModelConfig

if TYPE_CHECKING:
    from kvphase.lab.attention import Attention, Entries
    from kvphase.lab.compressors.chunked import Branch

STRIDE = 4
CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"
PLAIN = ModelConfig(vocab_size=256, compressor=ChunkedConfig(2 * STRIDE, STRIDE, "vector", "part"))
DEEPSEEK = replace(
    PLAIN,
    sink=True,
    query_rank=32,
    compressor=DSV4Config(csa=STRIDE, pattern=("csa",)),
)
LOCAL = replace(DEEPSEEK, compressor=DSV4Config(pattern=("local",)))


class Eager(nn.Module):
    """The layer in plain operations: real rotations, explicit windows, scores, mask and softmax.

    It holds an `Attention` for its parameters alone. A fixed grid, whole texts, no cache.
    """

    def __init__(self, attention: Attention) -> None:
        """Share the parameters of ``attention``."""
        super().__init__()
        self.inner = attention

    def forward(self, x: Tensor, known: dict[int, Entries], *_: object) -> tuple[Tensor, None]:
        """Map ``x [B, T, D]`` to the residual update ``[B, T, D]``."""
        del known
        inner, config = self.inner, self.inner.config
        assert inner.compressor is not None  # noqa: S101
        assert inner.key is not None  # noqa: S101
        here = torch.arange(x.shape[1])
        key = turn(inner.key_norm(self.split(inner.key(x))), here, config)
        value = key if inner.value is None else self.split(inner.value(x))
        branches = [b for b in inner.compressor.children() if hasattr(b, "payload")]
        pooled = [self.split(pool(branch, x)) for branch in branches]  # type: ignore[arg-type]
        starts = torch.arange(pooled[0].shape[2]) * STRIDE
        far = turn(pooled[0], starts, config)
        keys = torch.cat((key, far), 2)  # [B, G, T + N, d]
        values = keys if config.tied_kv else torch.cat((value, pooled[1]), 2)
        group = config.heads // config.kv_heads
        keys, values = (one.repeat_interleave(group, 1) for one in (keys, values))
        low = x if inner.query_down is None else inner.query_mid(inner.query_down(x))  # type: ignore[misc]
        query = turn(inner.query_norm(self.split(inner.query(low))), here, config)
        scores = query @ keys.transpose(-1, -2) / math.sqrt(config.head_dim)
        distance = here[:, None] - here
        near = (distance >= 0) & (distance < config.local_window)
        seen = torch.cat((near, starts + STRIDE - 1 <= here[:, None]), 1)
        scores = scores.masked_fill(~seen, float("-inf"))
        if inner.sink is not None:
            sink = inner.sink[None, :, None, None].expand(len(x), -1, x.shape[1], 1)
            scores = torch.cat((scores, sink), -1)
        weights = torch.softmax(scores, -1)[..., : keys.shape[2]]
        read = weights @ values
        if config.tied_kv:
            read = turn(read, -here, config)
        update: Tensor = inner.output(read.transpose(1, 2).flatten(2))
        return update, None

    def split(self, x: Tensor) -> Tensor:
        """``[B, T, heads*d]`` to ``[B, heads, T, d]``."""
        return torch.unflatten(x, -1, (-1, self.inner.config.head_dim)).transpose(1, 2)


def turn(x: Tensor, positions: Tensor, config: ModelConfig) -> Tensor:
    """RoPE on the last dimensions of ``x [B, heads, L, d]`` in sines and cosines."""
    dims = config.rope_dims
    angles = positions[:, None] * config.rope_base ** (-torch.arange(0, dims, 2) / dims)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)  # [L, dims/2]
    still, moving = x.split([x.shape[-1] - dims, dims], -1)
    even, odd = moving[..., ::2], moving[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    return torch.cat((still, turned.flatten(-2)), -1)


def pool(branch: Branch, x: Tensor) -> Tensor:
    """Entries ``[B, N, G*d]`` of ``x [B, T, D]``, one GEMM for each map, then each window."""
    window, count = branch.config.window, x.shape[1] // STRIDE
    before = window - STRIDE
    padded = torch.cat((x.new_zeros(len(x), before, x.shape[2]), x[:, : count * STRIDE]), 1)
    windows = padded.unfold(1, window, STRIDE).transpose(2, 3)  # [B, N, W, D]
    run = window // len(branch.payload)
    maps = [(branch.payload[slot // run], branch.gate[slot // run]) for slot in range(window)]
    payload = torch.stack([windows[:, :, i] @ each for i, (each, _) in enumerate(maps)], 2)
    scores = torch.stack([windows[:, :, i] @ each for i, (_, each) in enumerate(maps)], 2)
    first = torch.arange(count) * STRIDE - before  # the place of slot 0
    absent = (first[:, None] + torch.arange(window) < 0)[..., None]
    weights = torch.softmax((scores + branch.bias).masked_fill(absent, float("-inf")), 2)
    heads = torch.unflatten((weights * payload).sum(2), -1, (-1, branch.shape.head_dim))
    entries: Tensor = branch.norm(heads).flatten(2)
    return entries


def eager_decoder(model: nn.Module) -> nn.Module:
    """A copy of a `Decoder` whose layers attend eagerly."""
    model = copy.deepcopy(model)
    model.zero_grad()
    for block in model.blocks:  # type: ignore[union-attr]
        block.attention = Eager(block.attention)  # type: ignore[union-attr,arg-type]
    return model


# --- DeepSeek-V4 of transformers


def deepseek(length: int) -> Any:  # noqa: ANN401 - transformers gives no types
    """Their model of the sizes of `DEEPSEEK`; as little mixture and residual streams as it takes.

    One expert that is always chosen and one shared one, each half as wide as the lab's MLP; one
    residual stream; the smallest indexer.
    """
    transformers = importlib.import_module("transformers")
    ours = DEEPSEEK
    config = transformers.DeepseekV4Config(
        vocab_size=ours.vocab_size,
        hidden_size=ours.width,
        moe_intermediate_size=ours.mlp_width // 2,
        num_hidden_layers=ours.layers,
        num_attention_heads=ours.heads,
        head_dim=ours.head_dim,
        partial_rotary_factor=ours.rope_dims / ours.head_dim,
        compress_rope_theta=ours.rope_base,
        q_lora_rank=ours.query_rank,
        n_routed_experts=1,
        n_shared_experts=1,
        num_experts_per_tok=1,
        hc_mult=1,
        hc_sinkhorn_iters=1,
        layer_types=[CSA] * ours.layers,
        mlp_layer_types=["moe"] * ours.layers,
        compress_rates={CSA: STRIDE, HCA: 128},
        sliding_window=ours.local_window,
        o_groups=1,
        o_lora_rank=ours.width,
        index_n_heads=1,
        index_head_dim=16,
        index_topk=length,
        num_nextn_predict_layers=0,
        attn_implementation="eager",  # it has no other
        use_cache=False,
    )
    torch.manual_seed(0)
    model = transformers.DeepseekV4ForCausalLM(config)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.1)
    return model


class TakeAll(nn.Module):
    """In the place of their indexer: every entry that is complete, as their indexer finds here."""

    def forward(self, x: Tensor, *_: object) -> Tensor:
        """Indices ``[B, T, N]`` of entries for ``x [B, T, D]``, -1 where not complete yet."""
        entries = torch.arange(x.shape[1] // STRIDE)
        complete = (torch.arange(x.shape[1])[:, None] + 1) // STRIDE
        return torch.where(entries < complete, entries, -1).expand(len(x), -1, -1)


def without_indexer(module: nn.Module) -> nn.Module:
    """A copy of their layer or model that does not choose."""
    module = copy.deepcopy(module)
    for part in list(module.modules()):
        if hasattr(part, "indexer"):
            part.indexer = TakeAll()
    return module


def borrow(module: Any, attention: Attention) -> None:  # noqa: ANN401
    """Give our ``attention`` the weights of their attention ``module``."""
    size, kernel = module.head_dim, module.compressor

    def halves(weight: Tensor) -> Tensor:
        """``[2d, D]`` to ``[2, D, d]``."""
        return weight.reshape(2, size, -1).transpose(1, 2)

    weights = {
        "query_down.weight": module.q_a_proj.weight,
        "query_mid.scale": module.q_a_norm.weight,
        "query.weight": module.q_b_proj.weight,
        "query.bias": torch.zeros(module.q_b_proj.out_features),
        "query_norm.scale": torch.ones(size),
        "key.weight": module.kv_proj.weight,
        "key.bias": torch.zeros(size),
        "key_norm.scale": module.kv_norm.weight,
        "output.weight": module.o_b_proj.weight @ module.o_a_proj.weight,
        "sink": module.sinks,
        "compressor.keys.payload": halves(kernel.kv_proj.weight),
        "compressor.keys.gate": halves(kernel.gate_proj.weight),
        "compressor.keys.bias": torch.cat(kernel.position_bias.split(size, -1)),
        "compressor.keys.norm.scale": kernel.kv_norm.weight,
    }
    attention.load_state_dict(weights)
