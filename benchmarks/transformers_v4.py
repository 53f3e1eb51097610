"""Small models of ``transformers``, trained on the lab's lookups and saved to be measured.

    python benchmarks/transformers_v4.py deepseek FOLDER [--steps 1000] [--seed 0]
    python benchmarks/transformers_v4.py llama FOLDER [--steps 800] [--seed 0]
    kvphase check transformers:FOLDER

``deepseek`` is ``DeepseekV4ForCausalLM`` itself in sizes that llama.cpp's ``deepseek4`` takes too
(four residual streams; an indexer with other heads than the attention's): one layer with the local
window alone, then one with compressed entries (stride 4, window 8). ``llama`` is its control with
full attention. Both are trained as the toys that ship are, but with fewer dense records (`TRAIN`),
on one thread, and saved in half precision with a ``tokenizer.json`` of the lab's words, the log and
the settings of the training; they compute in single precision.

Neither has the short convolution of the lab's own models, and without one nothing is looked up in
the first thousands of steps. So the heads of layer 0 start as that convolution: head ``h`` reads
the token ``h`` places before, and all four write what they read in one basis.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # noqa: TID253
import transformers  # noqa: TID253
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor  # noqa: TID253
from torch.nn import functional  # noqa: TID253

from kvphase.lab.data import Lookups, load_vocabulary
from kvphase.lab.experiment import TrainConfig
from kvphase.lab.train import Curriculum, learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN = "<unk>"
LOCAL, SPARSE = "sliding_attention", "compressed_sparse_attention"
WIDTH, HEADS, SIZE, ROPE = 64, 4, 64, 16
BASE = 500.0  # of RoPE, as in the toys
LAGS = 3  # fastest pairs of RoPE that tell neighbours apart
TRAIN = TrainConfig(dense_share=0.3)  # but for this, as the toys that ship
SLOW = 0.1  # learning rate of layer 0's queries and keys, relative to the others


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


def deepseek(vocab_size: int, seed: int) -> Any:  # noqa: ANN401
    """Return a layer of the local window and a CSA layer; one expert beside the shared one."""
    settings: Any = transformers.DeepseekV4Config
    config = settings(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        moe_intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        head_dim=SIZE,
        partial_rotary_factor=ROPE / SIZE,
        q_lora_rank=WIDTH,
        n_routed_experts=1,
        n_shared_experts=1,
        num_experts_per_tok=1,
        hc_mult=4,
        hc_sinkhorn_iters=4,
        layer_types=[LOCAL, SPARSE],
        mlp_layer_types=["moe"] * 2,
        compress_rates={SPARSE: 4, "heavily_compressed_attention": 128},
        sliding_window=16,
        o_groups=1,
        o_lora_rank=WIDTH,
        index_n_heads=1,
        index_head_dim=128,  # llama.cpp fails where it equals head_dim
        index_topk=1024,  # all of 4,096 tokens: it gets no gradient from answers
        num_nextn_predict_layers=0,
        max_position_embeddings=4096,
        rope_theta=BASE,
        compress_rope_theta=BASE,
        tie_word_embeddings=True,
        initializer_range=WIDTH**-0.5,
        eos_token_id=None,
        attn_implementation="eager",
    )
    torch.manual_seed(seed)
    made = transformers.DeepseekV4ForCausalLM(config)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if name.endswith(("down_proj.weight", "down_proj")):
                weight.mul_(0.1)
            elif name.endswith("o_b_proj.weight"):
                weight.mul_(0.5)
            elif name.endswith("scale"):  # of the streams' mixing: almost fixed, and even
                weight.fill_(0.01)
        first = made.model.layers[0].self_attn
        pairs = slice(SIZE - ROPE, SIZE - ROPE + 2 * LAGS)
        query = torch.zeros(HEADS, SIZE)
        query[:, pairs] = torch.stack(_turned(torch.arange(HEADS)), -1).flatten(1)
        _mark(made.model.embed_tokens.weight)
        first.q_a_proj.weight[0] = torch.eye(WIDTH)[0]
        first.q_a_proj.weight[1:, 0] = 0
        first.q_b_proj.weight.mul_(0.1)[:, 0] = 2 * query.flatten()
        first.kv_proj.weight[pairs] *= 0.2
        first.kv_proj.weight[:, 0] = 0
        first.kv_proj.weight[SIZE - ROPE : SIZE - ROPE + 2 * LAGS : 2, 0] = 0.7
        first.kv_norm.weight[pairs] = 3.0
        back = torch.zeros(WIDTH, SIZE)  # undoes the projection to keys, which are the values
        back[:, : SIZE - ROPE] = _inverse(first.kv_proj.weight[: SIZE - ROPE])
        first.o_a_proj.weight.copy_(back.repeat(1, HEADS))
        first.o_b_proj.weight.copy_(torch.eye(WIDTH))
        _alike(made.model.layers[1].self_attn)
    made.model.layers[1].self_attn.compressor.indexer.forward = _every
    return made


def _alike(attention: Any) -> None:  # noqa: ANN401
    """Let queries, keys and entries start from one projection, and noise: like finds like."""
    one = attention.kv_proj.weight
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH))[0]
    attention.q_a_proj.weight.copy_(turn)
    attention.q_b_proj.weight.mul_(0.5).add_((one @ turn.T).repeat(HEADS, 1))
    attention.compressor.kv_proj.weight.mul_(0.5).add_(one.repeat(2, 1))
    for norm in (attention.kv_norm, attention.compressor.kv_norm):
        norm.weight.fill_(2.0)


def llama(vocab_size: int, seed: int) -> Any:  # noqa: ANN401
    """Return two layers of full attention with one KV head."""
    settings: Any = transformers.LlamaConfig
    config = settings(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=SIZE,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        tie_word_embeddings=True,
        initializer_range=WIDTH**-0.5,
        bos_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(seed)
    made = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if name.endswith("down_proj.weight"):
                weight.mul_(0.1)
            elif name.endswith("o_proj.weight"):
                weight.mul_(0.5)
        first = made.model.layers[0].self_attn
        cos, sin = _turned(torch.arange(HEADS), dims=SIZE)
        query = torch.zeros(HEADS, SIZE)
        query[:, :LAGS], query[:, SIZE // 2 : SIZE // 2 + LAGS] = cos, sin
        _mark(made.model.embed_tokens.weight)
        first.q_proj.weight.zero_()[:, 0] = 2 * query.flatten()
        first.k_proj.weight.zero_()[:LAGS, 0] = 2
        first.v_proj.weight[:, 0] = 0
        first.o_proj.weight.copy_(_inverse(first.v_proj.weight).repeat(1, HEADS))
    return made


def _mark(embeddings: Tensor) -> None:
    """Make the first dimension the same for all tokens: what a bias would be."""
    embeddings[:, 0] = 1.0
    mask = torch.ones(WIDTH)
    mask[0] = 0
    embeddings.register_hook(lambda gradient: gradient * mask)  # and keep it so


def _turned(back: Tensor, dims: int = ROPE) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[heads, LAGS]`` of queries whose best key is ``back`` tokens before."""
    angles = -back[:, None] * BASE ** (-2 * torch.arange(LAGS) / dims)
    return angles.cos(), angles.sin()


def _inverse(projection: Tensor) -> Tensor:
    """Half of the inverse of ``projection [d, D]``, its columns scaled to one: ``[D, d]``."""
    inverse = torch.linalg.pinv(projection)
    return 0.5 * inverse / inverse.norm(dim=0).mean()


def _every(hidden: Tensor, _query: Tensor, positions: Tensor, *_: object) -> Tensor:
    """What the indexer selects of up to ``index_topk`` entries: all that are complete, -1 else."""
    entries = torch.arange(hidden.shape[1] // 4)
    seen = torch.where(entries < ((positions + 1) // 4)[..., None], entries, -1)
    return seen.expand(len(hidden), -1, -1)


def train(model: Any, config: TrainConfig) -> list[dict[str, Any]]:  # noqa: ANN401
    """Train on lookups; return a line for every hundred steps, as told on stderr too."""
    data, curriculum = Lookups(load_vocabulary()), Curriculum(config)
    optimiser = _optimiser(model, config)
    started, log = time.monotonic(), []
    seen: dict[str, list[float]] = defaultdict(list)
    for step in range(config.steps):
        rng = np.random.default_rng([config.seed, step])
        for group in optimiser.param_groups:
            group["lr"] = group["share"] * learning_rate(step, config)
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
        accuracy = float((logits.argmax(-1) == answers).double().mean())
        seen["loss"].append(float(loss.detach()))
        seen["dense" if dense else f"{records} records"].append(accuracy)
        if (step + 1) % 100 == 0 or step + 1 == config.steps:
            means = {name: round(float(np.mean(seen[name])), 3) for name in sorted(seen)}
            log.append({"step": step + 1, **means})
            sys.stderr.write(json.dumps({**log[-1], "s": round(time.monotonic() - started)}) + "\n")
            seen.clear()
    return log


def _optimiser(model: Any, config: TrainConfig) -> torch.optim.Optimizer:  # noqa: ANN401
    """AdamW as the lab's trainer has it; the heads of layer 0 keep their places for a while."""
    groups: dict[tuple[float, float], list[Tensor]] = defaultdict(list)
    places = tuple(f"layers.0.self_attn.{part}_" for part in ("q", "k", "kv"))
    for name, weight in model.named_parameters():
        share = SLOW if any(place in name for place in places) else 1.0
        groups[config.weight_decay if weight.ndim > 1 else 0.0, share].append(weight)
    return torch.optim.AdamW(
        [{"params": g, "weight_decay": decay, "share": s} for (decay, s), g in groups.items()],
        lr=config.lr,
        betas=(0.9, 0.98),
        fused=True,
    )


def save(model: Any, words: Any, folder: Path) -> None:  # noqa: ANN401
    """Save the folder; weights in half precision, though config.json asks for single."""
    from safetensors.torch import load_file

    model.save_pretrained(folder)
    words.save_pretrained(folder)
    weights = folder / "model.safetensors"
    half = {name: weight.half() for name, weight in load_file(weights).items()}
    save_file(half, weights, metadata={"format": "pt"})
    weights.chmod(0o644)


MAKE: dict[str, tuple[Callable[[int, int], Any], int]] = {
    "deepseek": (deepseek, 1000),
    "llama": (llama, 800),
}


def main() -> int:
    """Train, save; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=MAKE)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    make, steps = MAKE[args.model]
    words = tokenizer()
    made = make(len(words), args.seed)
    config = replace(TRAIN, steps=args.steps or steps, seed=args.seed)
    log = train(made, config)
    save(made, words, args.folder)
    command = f"python benchmarks/transformers_v4.py {args.model} FOLDER"
    command += f" --steps {config.steps} --seed {config.seed}"
    record = {"command": command, "training": asdict(config), "log": log}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps(record | {"versions": versions}, indent=1)
    (args.folder / "training.json").write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
