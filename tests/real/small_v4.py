"""The small DeepSeek-V4 that transformers and llama.cpp both take; untrained."""

from __future__ import annotations

from typing import Any

import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from kvphase.lab.data import load_vocabulary

__all__ = ["small_v4", "words"]

SPARSE = "compressed_sparse_attention"


def words() -> Any:  # noqa: ANN401 - transformers gives no types
    """The lab's words as a fast tokenizer that puts BOS before every text."""
    vocabulary = load_vocabulary()
    tokens = [*vocabulary.tokens, "<unk>"]
    longest = sorted(vocabulary.tokens, key=len, reverse=True)
    made = Tokenizer(models.WordLevel({text: i for i, text in enumerate(tokens)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(longest)), "isolated")
    made.decoder = decoders.Fuse()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary.bos)]
    )
    fast: Any = transformers.PreTrainedTokenizerFast
    marks = {"bos_token": tokens[vocabulary.bos], "unk_token": tokens[-1]}
    return fast(tokenizer_object=made, **marks)


def small_v4() -> Any:  # noqa: ANN401
    """A layer of the local window and a CSA layer.

    llama.cpp wants four residual streams, and an indexer with other heads than the attention's
    whose size is a multiple of 64.
    """
    settings: Any = transformers.DeepseekV4Config
    return transformers.DeepseekV4ForCausalLM(
        settings(
            vocab_size=232,
            hidden_size=64,
            moe_intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            head_dim=64,
            partial_rotary_factor=0.25,
            q_lora_rank=64,
            n_routed_experts=1,
            n_shared_experts=1,
            num_experts_per_tok=1,
            hc_mult=4,
            hc_sinkhorn_iters=4,
            layer_types=["sliding_attention", SPARSE],
            mlp_layer_types=["moe", "moe"],
            compress_rates={SPARSE: 4, "heavily_compressed_attention": 128},
            sliding_window=16,
            o_groups=1,
            o_lora_rank=64,
            index_n_heads=1,
            index_head_dim=128,
            index_topk=1024,
            num_nextn_predict_layers=0,
            max_position_embeddings=4096,
            rope_theta=500.0,
            compress_rope_theta=500.0,
            tie_word_embeddings=True,
            initializer_range=0.125,
            eos_token_id=None,
            attn_implementation="eager",
        )
    )
