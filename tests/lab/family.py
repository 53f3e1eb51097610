"""Small members of every design with every option, for the tests of this folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from kvphase.lab.compressors import (
    ChunkedConfig,
    DSV4Config,
    DSV41Config,
    MLAConfig,
    NoneConfig,
    compressor_to_dict,
)
from kvphase.lab.transformer import ModelConfig

SMALL = ModelConfig(
    vocab_size=40,
    width=16,
    heads=4,
    kv_heads=2,
    head_dim=8,
    mlp_width=24,
    local_window=6,
    rope_dims=4,
    rope_base=100.0,
)
SHAPES = ((4, 4), (8, 4), (6, 6), (8, 6), (12, 4))
GATES: tuple[Literal["vector", "scalar", "uniform"], ...] = ("vector", "scalar", "uniform")
MAPS: tuple[Literal["slot", "part", "shared"], ...] = ("slot", "part", "shared")
OPTIONS: tuple[dict[str, bool | int], ...] = (
    {"tail": True},
    {"qk_norm": False},
    {"post_norm": True},
    {"sink": True},
    {"query_rank": 6, "conv": 0},
    {"tail": True, "sink": True, "qk_norm": False, "post_norm": True, "rope_dims": 0},
    {"local_window": 1, "conv": 1},
)


def chunked() -> list[ModelConfig]:
    """Chunked designs of all window shapes, gates and maps."""
    configs = []
    for number, (window, stride) in enumerate(SHAPES):
        for gates in GATES:
            for maps in MAPS:
                if maps == "part" and window % stride:
                    continue
                design = ChunkedConfig(window, stride, gates, maps, gate_bias=number % 2 == 0)
                tied, rope = gates != "scalar", (0, 4, 8)[number % 3]
                base = replace(SMALL, tied_kv=tied, rope_dims=rope)
                configs.append(replace(base, compressor=design))
    return configs


def designs() -> list[ModelConfig]:
    """One model of each design, deep enough for its plan of layers."""
    one = replace(SMALL, kv_heads=1)
    local = DSV4Config(csa=2, hca=8, pattern=("local", "csa", "hca"))
    return [
        SMALL,
        replace(SMALL, compressor=ChunkedConfig(8, 6, "scalar", "slot"), tied_kv=False),
        replace(SMALL, compressor=NoneConfig(), tied_kv=False),
        replace(SMALL, compressor=MLAConfig(6), tied_kv=False),
        replace(one, compressor=DSV4Config(csa=4, hca=16)),
        replace(one, compressor=local, layers=3),
        replace(one, compressor=DSV41Config((1, 3), (2, 1)), layers=5),
    ]


def matrix() -> list[ModelConfig]:
    """Every design with every option, and all forms of the chunked one."""
    with_options = [replace(config, **o) for config in designs() for o in OPTIONS]  # type: ignore[arg-type]
    return [*designs(), *chunked(), *with_options]


def name(config: ModelConfig) -> str:
    """A test's name: what sets this model apart."""
    settings = compressor_to_dict(config.compressor)
    options = [key for key in OPTIONS[5] if getattr(config, key) != getattr(SMALL, key)]
    shape = [config.tied_kv, config.rope_dims, config.local_window, config.conv]
    return "-".join(map(str, [*settings.values(), *shape, *options]))


def ids(length: int, seed: int = 0) -> Tensor:
    """Two random texts ``[2, length]``."""
    return torch.randint(40, (2, length), generator=torch.Generator().manual_seed(seed))


def eager_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor, scale: float | None = None
) -> Tensor:
    """Attention spelt out, the oracle of the fused and blocked one."""
    scores = query @ key.transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
    return torch.softmax(scores.masked_fill(~attn_mask, float("-inf")), -1) @ value
