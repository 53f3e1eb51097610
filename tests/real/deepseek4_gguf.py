"""Writes a small DeepSeek-V4 that ``transformers`` saved as GGUF, as llama.cpp reads it.

    python tests/real/deepseek4_gguf.py FOLDER MODEL.gguf

Keys and tensors are those of llama.cpp's architecture ``deepseek4``. All weights become single
precision. The words become tokens that are matched whole, the longest first; a unigram tokenizer
turns what they do not spell into ``<unk>``.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from safetensors import safe_open

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATIOS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
SQRT_SOFTPLUS = 4
COUNTS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "moe_intermediate_size",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_count": "n_routed_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_shared_count": "n_shared_experts",
    "rope.dimension_count": "qk_rope_head_dim",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.sliding_window": "sliding_window",
    "attention.output_group_count": "o_groups",
    "attention.output_lora_rank": "o_lora_rank",
    "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim",
    "attention.indexer.top_k": "index_topk",
    "hyper_connection.count": "hc_mult",
    "hyper_connection.sinkhorn_iterations": "hc_sinkhorn_iters",
}
NUMBERS = {
    "rope.freq_base": "rope_theta",
    "attention.compress_rope_freq_base": "compress_rope_theta",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "expert_weights_scale": "routed_scaling_factor",
    "hyper_connection.epsilon": "hc_eps",
}
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.hc_head.hc_fn": "output_hc_fn.weight",
    "model.hc_head.hc_base": "output_hc_base.weight",
    "model.hc_head.hc_scale": "output_hc_scale.weight",
}
LAYER = {
    "attn_norm.weight": "attn_norm.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "attn.attn_sink": "attn_sinks.weight",
    "attn.wq_a.weight": "attn_q_a.weight",
    "attn.q_norm.weight": "attn_q_a_norm.weight",
    "attn.wq_b.weight": "attn_q_b.weight",
    "attn.wkv.weight": "attn_kv.weight",
    "attn.norm.weight": "attn_kv_a_norm.weight",
    "attn.wo_a.weight": "attn_output_a.weight",
    "attn.wo_b.weight": "attn_output_b.weight",
    "attn.compressor.wkv.weight": "attn_compressor_kv.weight",
    "attn.compressor.wgate.weight": "attn_compressor_gate.weight",
    "attn.compressor.ape": "attn_compressor_ape.weight",
    "attn.compressor.norm.weight": "attn_compressor_norm.weight",
    "attn.indexer.weights_proj.weight": "indexer.proj.weight",
    "attn.indexer.wq_b.weight": "indexer.attn_q_b.weight",
    "attn.indexer.compressor.wkv.weight": "indexer_compressor_kv.weight",
    "attn.indexer.compressor.wgate.weight": "indexer_compressor_gate.weight",
    "attn.indexer.compressor.ape": "indexer_compressor_ape.weight",
    "attn.indexer.compressor.norm.weight": "indexer_compressor_norm.weight",
    "ffn.gate.weight": "ffn_gate_inp.weight",
    "ffn.gate.bias": "exp_probs_b.bias",
    "ffn.shared_experts.w1.weight": "ffn_gate_shexp.weight",
    "ffn.shared_experts.w3.weight": "ffn_up_shexp.weight",
    "ffn.shared_experts.w2.weight": "ffn_down_shexp.weight",
    **{
        f"hc_{half}_{part}": f"hc_{half}_{part}.weight"
        for half in ("attn", "ffn")
        for part in ("fn", "base", "scale")
    },
}
EXPERTS = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # kinds of tokens


def write(folder: Path, path: Path) -> None:
    """Write the model in ``folder`` to ``path``."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    writer: Any = gguf.GGUFWriter(path, "deepseek4")
    _settings(writer, config)
    _words(writer, json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"])
    for name, tensor in _tensors(folder / "model.safetensors").items():
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _settings(writer: Any, config: dict[str, Any]) -> None:  # noqa: ANN401 - it gives no types
    layers = config["num_hidden_layers"]
    for key, name in COUNTS.items():
        writer.add_uint32(f"deepseek4.{key}", config[name])
    for key, name in NUMBERS.items():
        writer.add_float32(f"deepseek4.{key}", float(config[name]))
    width = config["hidden_size"] * config["hc_mult"]
    writer.add_uint32("deepseek4.embedding_length_out", width)
    writer.add_uint32("deepseek4.expert_gating_func", SQRT_SOFTPLUS)
    writer.add_bool("deepseek4.expert_weights_norm", val=True)
    writer.add_uint32("deepseek4.hash_layer_count", 0)
    ratios = [RATIOS[kind] for kind in config["layer_types"]]
    writer.add_array("deepseek4.attention.compress_ratios", ratios)
    for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        writer.add_array(f"deepseek4.{key}", [float(config["swiglu_limit"])] * layers)


def _words(writer: Any, model: dict[str, Any]) -> None:  # noqa: ANN401
    vocabulary: dict[str, int] = model["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = {"<s>": CONTROL, "<unk>": UNKNOWN}
    writer.add_tokenizer_model("t5")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(each, USER_DEFINED) for each in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_add_space_prefix(value=False)
    writer.add_remove_extra_whitespaces(value=False)
    writer.add_bos_token_id(vocabulary["<s>"])
    writer.add_add_bos_token(value=True)
    writer.add_eos_token_id(vocabulary["<s>"])  # nothing else ends a text
    writer.add_add_eos_token(value=False)
    writer.add_unk_token_id(vocabulary["<unk>"])


def _tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The weights under llama.cpp's names; experts of a layer stacked, the embedding twice."""
    made: dict[str, NDArray[np.float32]] = {}
    stacks: dict[str, dict[int, NDArray[np.float32]]] = defaultdict(dict)
    with safe_open(path, "np") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            tensor = file.get_tensor(name).astype(np.float32)
            if name in OUTER:
                made[OUTER[name]] = tensor
                continue
            _, _, layer, rest = name.split(".", 3)
            if rest.startswith("ffn.experts."):
                _, _, expert, part, _ = rest.split(".")
                stacks[f"blk.{layer}.{EXPERTS[part]}.weight"][int(expert)] = tensor
            else:
                made[f"blk.{layer}.{LAYER[rest]}"] = tensor
    for name, experts in stacks.items():
        made[name] = np.stack([experts[number] for number in sorted(experts)])
    made["output.weight"] = made["token_embd.weight"]
    return made


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
