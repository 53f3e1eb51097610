"""A small DeepSeek-V4 of ``transformers``, trained on the lab's lookups and saved to be measured.

    python benchmarks/transformers_v4.py FOLDER [--minutes 10] [--seed 0]
    kvphase check transformers:FOLDER --probe lookup-prefix@1

The model is ``DeepseekV4ForCausalLM`` itself: two compressed layers (stride 4, window 8), the
indexer wide open, since it gets no gradient from these answers. It is trained for the given time on
one thread and saved with a ``tokenizer.json`` of the lab's words.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID253
import transformers  # noqa: TID253
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch.nn import functional  # noqa: TID253

from kvphase.lab.data import Lookups, load_vocabulary
from kvphase.lab.experiment import TrainConfig
from kvphase.lab.train import Curriculum, learning_rate

UNKNOWN = "<unk>"
TYPES = ("compressed_sparse_attention", "heavily_compressed_attention")


def tokenizer() -> Any:  # noqa: ANN401 - transformers gives no types
    """Return the lab's words as a fast tokenizer that puts BOS before every text."""
    words = load_vocabulary()
    tokens = [*words.tokens, UNKNOWN]
    longest = sorted(words.tokens, key=len, reverse=True)
    made = Tokenizer(models.WordLevel({text: i for i, text in enumerate(tokens)}, UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(longest)), "isolated")
    made.decoder = decoders.Fuse()
    bos = words.tokens[words.bos]
    made.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, words.bos)]
    )
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_object=made, bos_token=bos, unk_token=UNKNOWN)


def model(vocab_size: int, seed: int) -> Any:  # noqa: ANN401
    """Return two CSA layers of width 64; the hyper-connections and the experts are one each."""
    settings: Any = transformers.DeepseekV4Config
    config = settings(
        vocab_size=vocab_size,
        hidden_size=64,
        moe_intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_dim=32,
        partial_rotary_factor=0.5,
        q_lora_rank=64,
        n_routed_experts=1,
        n_shared_experts=1,
        num_experts_per_tok=1,
        hc_mult=1,
        hc_sinkhorn_iters=1,
        layer_types=[TYPES[0]] * 2,
        mlp_layer_types=["moe"] * 2,
        compress_rates=dict(zip(TYPES, (4, 16), strict=True)),
        sliding_window=16,
        o_groups=1,
        o_lora_rank=64,
        index_n_heads=1,
        index_head_dim=16,
        index_topk=1024,
        num_nextn_predict_layers=0,
        max_position_embeddings=4096,
        attn_implementation="eager",
    )
    torch.manual_seed(seed)
    return transformers.DeepseekV4ForCausalLM(config)


def train(model: Any, minutes: float, config: TrainConfig) -> None:  # noqa: ANN401
    """Train on lookups until the time is over; a line on stderr every hundred steps."""
    data, curriculum = Lookups(load_vocabulary()), Curriculum(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.98))
    started, step, seen = time.monotonic(), 0, []
    while time.monotonic() - started < 60 * minutes:
        rng = np.random.default_rng([config.seed, step])
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, config)
        records = config.levels[int(rng.integers(curriculum.at(step)))]
        dense = bool(rng.random() < config.dense_share)
        batch = data.batch(rng, records, config.tokens, config.questions, dense=dense)
        answers, columns = torch.from_numpy(batch.answers), torch.from_numpy(batch.columns)
        hidden = model.model(torch.from_numpy(batch.ids), use_cache=False).last_hidden_state
        asked = hidden.gather(1, columns[..., None].expand(-1, -1, hidden.shape[-1]))
        logits = model.lm_head(asked)  # [B, Q, vocab]
        loss = functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        accuracy = float((logits.argmax(-1) == answers).double().mean())
        if not dense:
            curriculum.note(records, accuracy)
            seen.append(accuracy)
        if step % 100 == 0:
            line: dict[str, Any] = {"step": step, "loss": round(float(loss.detach()), 3)}
            line |= {"accuracy": round(float(np.mean(seen)), 3) if seen else None}
            line |= {"levels": curriculum.opened, "seconds": round(time.monotonic() - started)}
            sys.stderr.write(json.dumps(line) + "\n")
            seen = []


def main() -> int:
    """Train, save; return the exit code."""
    parser = argparse.ArgumentParser(description="Train a small DeepSeek-V4 of transformers.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    words = tokenizer()
    made = model(len(words), args.seed)
    train(made, args.minutes, TrainConfig(seed=args.seed))  # as the toys that ship were trained
    made.save_pretrained(args.folder)
    words.save_pretrained(args.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
