from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kvphase.errors import UsageError
from kvphase.lab.attention import visible
from kvphase.lab.compressors import (
    ChunkedConfig,
    DSV4Config,
    DSV41Config,
    KVShape,
    MLAConfig,
    NoneConfig,
    compressor_from_dict,
)
from kvphase.lab.model_config import ModelConfig
from kvphase.lab.transformer import rotate
from lab.family import SMALL, chunked, designs, eager_attention, ids, matrix, name


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
        monkeypatch.setattr("kvphase.lab.attention.BLOCK", 10_000)
        monkeypatch.setattr(functional, "scaled_dot_product_attention", eager_attention)
        torch.testing.assert_close(fused, model(text), rtol=0, atol=1e-9)


@pytest.mark.parametrize("config", matrix()[::5], ids=name)
def test_chosen_positions_equal_all_positions(config: ModelConfig) -> None:
    model, text = config.build(2).double(), ids(50)
    at = torch.tensor([[49, 3, 20], [7, 8, 49]])
    with torch.no_grad():
        chosen = model.hidden(text, at)
        torch.testing.assert_close(chosen, model.hidden(text)[torch.arange(2)[:, None], at])


@pytest.mark.parametrize("config", matrix(), ids=name)
def test_a_cache_changes_nothing(config: ModelConfig) -> None:
    """Token by token, and in pieces of any length, gives what one evaluation gives."""
    model, text = config.build(2).double(), ids(44)
    with torch.no_grad():
        whole = model(text)
    one = model.start(2)
    for cuts in (range(45), (0, 1, 17, 33, 44)):
        cache = model.start(2)
        parts = [model.extend(cache, text[:, a:b]) for a, b in pairwise(cuts)]
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-9)
        assert cache.length == 44
    assert one.length == 0


@pytest.mark.parametrize("config", designs(), ids=name)
def test_forks_of_a_prefix_do_not_meet(config: ModelConfig) -> None:
    model, text = config.build(2).double(), ids(40)
    other = ids(10, seed=1)
    prefix = model.start(2)
    model.extend(prefix, text[:, :30])
    first = model.extend(prefix.fork(), text[:, 30:])
    elsewhere = model.extend(prefix.fork(), other)
    with torch.no_grad():
        torch.testing.assert_close(first, model(text)[:, 30:], rtol=0, atol=1e-9)
        joined = torch.cat((text[:, :30], other), 1)
        torch.testing.assert_close(elsewhere, model(joined)[:, 30:], rtol=0, atol=1e-9)
    assert prefix.length == 30


def period(config: ModelConfig) -> int:
    """The stride of the model as a whole: that of its coarsest grid."""
    compressors = [attention.compressor for attention in config.build(0).attentions]
    return max(c.stride or 1 for c in compressors if c is not None)


@pytest.mark.parametrize("config", [*designs(), *chunked()[::3]], ids=name)
def test_only_the_phase_of_a_text_matters(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no absolute positions: a shift by whole strides changes no output.

    What lies further back than 24 tokens is hidden, so that only the same text is in sight.
    """

    def near(here: Tensor, there: Tensor, ends: Tensor, *args: int, **options: bool) -> Tensor:
        seen = visible(here, there, ends, *args, **options)
        gone = torch.cat((there, ends), -1) <= here[..., None] - 24
        return seen & ~(gone & (torch.cat((there, ends), -1) != here[..., None]))

    monkeypatch.setattr("kvphase.lab.attention.visible", near)
    # a shift that both grids of a model divide, and one that none does
    model, stride, text = config.build(3).double(), period(config), ids(300)
    reach = 48 * config.layers + config.conv
    with torch.no_grad():
        whole = model(text)[:, stride + reach :]
        shifted = model(text[:, stride:])[:, reach:]
        torch.testing.assert_close(whole, shifted, rtol=0, atol=2e-4)  # angles are fp32
        if stride > 1:
            torn = model(text[:, stride - 1 :])[:, reach + 1 :]
            assert (whole - torn).abs().max() > 1e-2


def test_masks_by_hand() -> None:
    def mask(
        length: int, stride: int, window: int | None, *, tail: bool = False
    ) -> list[list[int]]:
        here = torch.arange(length)
        ends = torch.arange(length // stride) * stride + stride - 1
        return visible(here, here, ends, window, tail=tail).int().tolist()

    assert mask(5, 2, 2) == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 1, 0],
        [0, 1, 1, 0, 0, 1, 0],
        [0, 0, 1, 1, 0, 1, 1],
        [0, 0, 0, 1, 1, 1, 1],
    ]
    assert mask(5, 3, 9, tail=True) == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 1],  # itself, though the entry that it completes holds it too
        [0, 0, 0, 1, 0, 1],
        [0, 0, 0, 1, 1, 1],
    ]
    assert mask(3, 9, None) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_each_head_may_have_its_own_grid() -> None:
    here = torch.arange(3)
    seen = visible(here, here[:0], torch.tensor([[0, 2], [1, 3]]), 1, tail=False)
    assert seen.int().tolist() == [[[1, 0], [1, 0], [1, 1]], [[0, 0], [1, 0], [1, 0]]]


def test_uniform_gates_give_the_mean_of_the_window() -> None:
    design = ChunkedConfig(4, 2, "uniform", "shared")
    keys = design.build(KVShape(width=16, kv_heads=1, head_dim=8, tied=True)).keys
    x = torch.randn(1, 6, 16)
    payload = x @ keys.payload[0]
    means = torch.stack([payload[0, :2].mean(0), payload[0, :4].mean(0), payload[0, 2:].mean(0)])
    torch.testing.assert_close(keys(x)[0], keys.norm(means))


def test_a_sink_takes_its_share() -> None:
    """With equal scores everywhere, ``n`` keys and a sink of zero leave ``n / (n+1)``."""
    config = replace(SMALL, sink=True, qk_norm=False, rope_dims=0, compressor=NoneConfig())
    attention = config.build(0).attentions[0]
    torch.nn.init.zeros_(attention.query.weight)
    torch.nn.init.zeros_(attention.query.bias)
    x, plain = torch.randn(1, 5, 16), config.build(0).attentions[0]
    plain.load_state_dict(attention.state_dict())
    plain.sink = None
    with torch.no_grad():
        sunk, full = attention(x, {})[0], plain(x, {})[0]
    share = torch.arange(1, 6) / torch.arange(2, 7)
    torch.testing.assert_close(sunk, full * share[:, None])


def test_the_latent_is_all_that_mla_caches() -> None:
    config = replace(SMALL, compressor=MLAConfig(6), tied_kv=False)
    model = config.build(0)
    cache = model.start(2)
    model.extend(cache, ids(20))
    for layer in cache.layers:
        assert layer.entries.shape == (2, 20, 6 + 4)
        assert layer.key.numel() == layer.value.numel() == layer.inputs.numel() == 0


def test_shared_entries_are_made_once() -> None:
    model = designs()[-1].build(0)
    made = [a.layer for a in model.attentions if a.compressor is not None]
    assert made == [1, 3]
    cache = model.start(2)
    model.extend(cache, ids(20))
    assert [layer.entries.shape[1] for layer in cache.layers] == [0, 10, 0, 20, 0]
    assert [attention.source for attention in model.attentions] == [None, 1, 1, 3, 3]


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
        ({"kv_heads": 3}, "kv_heads: 4 query heads"),
        ({"rope_dims": 3}, "rope_dims.*must be even"),
        ({"rope_dims": 10}, "rope_dims.*at most head_dim"),
        ({"head_dim": 7}, "head_dim.*must be even"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"conv": -1}, "conv must not be negative"),
        ({"compressor": MLAConfig()}, "tied_kv must be false"),
        ({"compressor": MLAConfig(), "tied_kv": False, "rope_dims": 8}, "rope_dims.*below"),
        ({"compressor": DSV4Config(), "kv_heads": 2}, "kv_heads must be 1"),
        ({"compressor": DSV41Config(), "tied_kv": False}, "tied_kv must be true"),
        ({"compressor": DSV41Config((0, 2))}, "compressor.makers: there is no layer 2"),
    ],
)
def test_impossible_models_are_refused(change: dict[str, object], message: str) -> None:
    sizes = {"vocab_size": 40, "head_dim": 8, "rope_dims": 4}
    with pytest.raises(UsageError, match=message):
        ModelConfig(**{**sizes, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"name": "magic"},
            "compressor.name: no compressor design is called 'magic'; known: .*mla",
        ),
        ({"name": "chunked", "window": 4, "stride": 5}, "compressor.stride must lie between"),
        ({"name": "chunked", "stride": 0}, "compressor.stride must lie between"),
        ({"name": "chunked", "window": 8, "stride": 6}, "compressor.maps: maps per part"),
        ({"name": "chunked", "gates": "soft"}, "compressor.gates"),
        ({"name": "chunked", "windw": 8}, "compressor.windw is not a setting; did you mean window"),
        ({"name": "chunked", "window": "eight"}, "compressor.window: "),
        ({"name": "chunked", "window": True}, "compressor.window must be a number"),
        ({"name": "none", "window": 8}, "compressor.window is not a setting"),
        ({"name": "mla", "latent": 0}, "compressor.latent"),
        ({"name": "dsv4", "hca": 0}, "compressor.hca"),
        ({"name": "dsv4", "pattern": ["csa", "xyz"]}, "compressor.pattern"),
        ({"name": "dsv41", "makers": [2, 1], "strides": [2, 1]}, "compressor.makers must list"),
        ({"name": "dsv41", "makers": [0, 1], "strides": [2]}, "compressor.strides must give"),
    ],
)
def test_impossible_compressors_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compressor_from_dict(settings)


def test_seeds_decide_the_weights_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one, two = SMALL.build(4).state_dict(), SMALL.build(4).state_dict()
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["embedding.weight"], SMALL.build(5).state_dict()["embedding.weight"])
