from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kvphase.lab.compressors import (
    ChunkedConfig,
    KVShape,
    NoneConfig,
    compressor_from_dict,
    compressor_to_dict,
)
from kvphase.lab.transformer import ModelConfig, attention_mask, rotate

SMALL = ModelConfig(
    vocab_size=40,
    width=16,
    heads=4,
    kv_heads=2,
    head_dim=8,
    mlp_width=24,
    local_window=6,
    rope_dims=4,
)
SHAPES = ((4, 4), (8, 4), (6, 6), (8, 6), (12, 4))
GATES: tuple[Literal["vector", "scalar", "uniform"], ...] = ("vector", "scalar", "uniform")
MAPS: tuple[Literal["slot", "part", "shared"], ...] = ("slot", "part", "shared")


def matrix() -> list[ModelConfig]:
    configs = [SMALL, replace(SMALL, compressor=NoneConfig(), tied_kv=False)]
    for number, (window, stride) in enumerate(SHAPES):
        for gates in GATES:
            for maps in MAPS:
                if maps == "part" and window % stride:
                    continue
                design = ChunkedConfig(window, stride, gates, maps, gate_bias=number % 2 == 0)
                tied, rope = gates != "scalar", (0, 4, 8)[number % 3]
                base = replace(SMALL, tied_kv=tied, rope_dims=rope, rope_base=100.0)
                configs.append(replace(base, compressor=design))
    return configs


def name(config: ModelConfig) -> str:
    settings = compressor_to_dict(config.compressor)
    return "-".join(map(str, [*settings.values(), config.tied_kv, config.rope_dims]))


def ids(length: int, seed: int = 0) -> Tensor:
    return torch.randint(40, (2, length), generator=torch.Generator().manual_seed(seed))


def eager_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor) -> Tensor:
    """Attention spelt out, the oracle of the fused and blocked one."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(~attn_mask, float("-inf")), -1) @ value


@pytest.mark.parametrize("config", matrix(), ids=name)
def test_no_token_sees_a_later_one(config: ModelConfig) -> None:
    model, text = config.build(1).double(), ids(50)
    with torch.no_grad():
        before = model(text)
        for position in (0, 3, 7, 24, 41, 49):
            changed = text.clone()
            changed[:, position] = (changed[:, position] + 1) % 40
            after = model(changed)
            torch.testing.assert_close(after[:, :position], before[:, :position], rtol=0, atol=0)
            assert (after[:, position] - before[:, position]).abs().max() > 1e-6


@pytest.mark.parametrize("config", matrix(), ids=name)
def test_every_completed_entry_is_seen(config: ModelConfig) -> None:
    """A token outside the local windows still reaches the last logits, through an entry."""
    model, text = config.build(1).double(), ids(50)
    with torch.no_grad():
        before = model(text)[:, -1]
        for position in (0, 5, 10):
            changed = text.clone()
            changed[:, position] = (changed[:, position] + 1) % 40
            assert (model(changed)[:, -1] - before).abs().max() > 1e-7


@pytest.mark.parametrize("config", matrix()[::3], ids=name)
def test_blocks_equal_eager_attention(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = config.build(2).double(), ids(150)
    with torch.no_grad():
        fused = model(text)
        monkeypatch.setattr("kvphase.lab.transformer.BLOCK", 10_000)
        monkeypatch.setattr(functional, "scaled_dot_product_attention", eager_attention)
        torch.testing.assert_close(fused, model(text), rtol=0, atol=1e-9)


@pytest.mark.parametrize("config", matrix()[::5], ids=name)
def test_chosen_positions_equal_all_positions(config: ModelConfig) -> None:
    model, text = config.build(2).double(), ids(50)
    at = torch.tensor([[49, 3, 20], [7, 8, 49]])
    with torch.no_grad():
        chosen = model.hidden(text, at)
        torch.testing.assert_close(chosen, model.hidden(text)[torch.arange(2)[:, None], at])


@pytest.mark.parametrize(("window", "stride"), [(4, 4), (8, 4), (8, 6)])
def test_a_shift_by_the_stride_changes_no_entry(window: int, stride: int) -> None:
    """Away from the start an entry depends on its tokens only, not on where they stand."""
    design = ChunkedConfig(window, stride, "vector", "slot")
    compressor = design.build(KVShape(width=16, kv_heads=2, head_dim=8, tied=True))
    x = torch.randn(1, 48, 16, generator=torch.Generator().manual_seed(1))
    shifted = functional.pad(x, (0, 0, stride, 0))
    entries, moved = compressor(x)[0], compressor(shifted)[0]
    torch.testing.assert_close(entries[:, :, 2:], moved[:, :, 3:])
    other = compressor(functional.pad(x, (0, 0, stride - 1, 0)))[0]
    assert (entries[:, :, 2:6] - other[:, :, 3:7]).abs().max() > 1e-2


def test_masks_by_hand() -> None:
    mask = attention_mask(ChunkedConfig(4, 2), 5, 2).int().tolist()
    assert mask == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 1, 0],
        [0, 1, 1, 0, 0, 1, 0],
        [0, 0, 1, 1, 0, 1, 1],
        [0, 0, 0, 1, 1, 1, 1],
    ]
    assert attention_mask(NoneConfig(), 3, 1).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_uniform_gates_give_the_mean_of_the_window() -> None:
    design = ChunkedConfig(4, 2, "uniform", "shared")
    keys = design.build(KVShape(width=16, kv_heads=1, head_dim=8, tied=True)).keys
    x = torch.randn(1, 6, 16)
    payload = x @ keys.payload[0]
    means = torch.stack([payload[0, :2].mean(0), payload[0, :4].mean(0), payload[0, 2:].mean(0)])
    torch.testing.assert_close(keys(x)[0, 0], keys.norm(means))


def test_rotation_depends_on_distance_only() -> None:
    query, key = torch.randn(2, 1, 8, dtype=torch.float64)
    at = torch.tensor

    def score(i: int, j: int) -> Tensor:
        return rotate(query, at([i]), 4, 100.0) @ rotate(key, at([j]), 4, 100.0).T

    torch.testing.assert_close(score(9, 4), score(25, 20), rtol=0, atol=1e-5)
    assert (score(9, 4) - score(9, 5)).abs() > 1e-3
    turned = rotate(query, at([7]), 4, 100.0)
    torch.testing.assert_close(turned[:, :4], query[:, :4])
    torch.testing.assert_close(rotate(turned, at([-7]), 4, 100.0), query, rtol=0, atol=1e-6)


@pytest.mark.parametrize("config", matrix()[::6], ids=name)
def test_settings_survive_a_round_trip(config: ModelConfig) -> None:
    assert ModelConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 3}, "do not share"),
        ({"rope_dims": 3}, "must be even"),
        ({"rope_dims": 10}, "at most head_dim"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{"vocab_size": 40, "head_dim": 8, **change})  # type: ignore[arg-type]


def test_impossible_compressors_are_refused() -> None:
    with pytest.raises(ValueError, match="stride of 5"):
        ChunkedConfig(4, 5)
    with pytest.raises(ValueError, match="multiple"):
        ChunkedConfig(8, 6, maps="part")
    with pytest.raises(ValueError, match="no compressor design"):
        compressor_from_dict({"name": "magic"})


def test_seeds_decide_the_weights_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one, two = SMALL.build(4).state_dict(), SMALL.build(4).state_dict()
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["embedding.weight"], SMALL.build(5).state_dict()["embedding.weight"])
