"""The design ``dsv4`` against DeepSeek-V4 as ``transformers`` implements it, at equal weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from kvphase.lab.compressors import DSV4Config
from kvphase.lab.model_config import ModelConfig

if TYPE_CHECKING:
    from kvphase.lab.attention import Attention

TYPES = ("compressed_sparse_attention", "heavily_compressed_attention")


def theirs() -> Any:  # noqa: ANN401 - transformers gives no types
    """Their tiny model: a layer of each kind, random weights, sinks and biases included."""
    transformers = pytest.importorskip("transformers")
    config = transformers.DeepseekV4Config(
        vocab_size=40,
        hidden_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        head_dim=16,
        partial_rotary_factor=0.25,
        q_lora_rank=16,
        n_routed_experts=1,
        n_shared_experts=1,
        num_experts_per_tok=1,
        hc_mult=1,
        hc_sinkhorn_iters=1,
        layer_types=list(TYPES),
        mlp_layer_types=["moe", "moe"],
        compress_rates=dict(zip(TYPES, (4, 16), strict=True)),
        sliding_window=16,
        o_groups=1,
        o_lora_rank=32,
        index_n_heads=1,
        index_head_dim=8,
        index_topk=64,
        num_nextn_predict_layers=0,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = transformers.DeepseekV4ForCausalLM(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def ours(config: Any) -> ModelConfig:  # noqa: ANN401
    """The same sizes as settings of the lab."""
    return ModelConfig(
        vocab_size=config.vocab_size,
        layers=2,
        width=config.hidden_size,
        heads=config.num_attention_heads,
        head_dim=config.head_dim,
        local_window=config.sliding_window,
        rope_dims=4,
        rope_base=config.compress_rope_theta,
        sink=True,
        query_rank=config.q_lora_rank,
        compressor=DSV4Config(csa=4, hca=16),
    )


def copy(module: Any, attention: Attention) -> None:  # noqa: ANN401
    """Give ``attention`` the weights of their attention ``module``."""
    size, compressor = module.head_dim, module.compressor
    halves = compressor.kv_proj.weight.shape[0] // size  # [Ca | Cb] or one

    def split(weight: Tensor) -> Tensor:
        """``[halves*d, D]`` to ``[halves, D, d]``."""
        return weight.reshape(halves, size, -1).transpose(1, 2)

    bias = compressor.position_bias  # [m, halves*d]: the slots of Ca, then those of Cb
    weights = {
        "query_down.weight": module.q_a_proj.weight,
        "query_mid.scale": module.q_a_norm.weight,
        "query.weight": module.q_b_proj.weight,
        "query.bias": torch.zeros(module.q_b_proj.out_features),
        "query_norm.scale": torch.ones(size),
        "key.weight": module.kv_proj.weight,
        "key.bias": torch.zeros(size),
        "key_norm.scale": module.kv_norm.weight,
        # two linear maps in a row, the first one group by group: here there is one group
        "output.weight": module.o_b_proj.weight @ module.o_a_proj.weight,
        "sink": module.sinks,
        "compressor.keys.payload": split(compressor.kv_proj.weight),
        "compressor.keys.gate": split(compressor.gate_proj.weight),
        "compressor.keys.bias": torch.cat(bias.split(size, -1)),
        "compressor.keys.norm.scale": compressor.kv_norm.weight,
    }
    attention.load_state_dict(weights)


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, 16, 64, 100])
def test_each_layer_equals_that_of_transformers(length: int) -> None:
    model = theirs()
    mine = ours(model.config).build(0)
    seen: list[tuple[Tensor, Tensor]] = []
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(
            lambda _, args, kwargs, out: seen.append(
                (kwargs["hidden_states"] if "hidden_states" in kwargs else args[0], out[0])
            ),
            with_kwargs=True,
        )
    text = torch.randint(40, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model(text, use_cache=False)
        for attention, layer, (inputs, expected) in zip(
            mine.attentions, model.model.layers, seen, strict=True
        ):
            copy(layer.self_attn, attention)
            update, _ = attention(inputs, {})
            torch.testing.assert_close(
                update, expected, rtol=1e-4, atol=1e-4 * expected.std().item()
            )
