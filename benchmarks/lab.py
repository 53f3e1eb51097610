"""How fast the lab's attention is: against plain operations, against transformers, as texts grow.

    python benchmarks/lab.py [--json benchmarks/results/lab.json] [--threads 1] [--repeats 40]
    python benchmarks/lab.py --profile         where the time goes, by operation
    python benchmarks/lab.py --quick           seconds: all compute the same, ratios come out

Forward and backward of one attention layer and of a decoder of two, W8/S4, by

* ``ours``: `kvphase.lab.attention.Attention`, one boolean mask, fused attention in blocks;
* ``eager``: `Eager` below, the oracle: explicit scores, mask and softmax over the whole text;
* ``transformers``: its DeepSeek-V4, at equal sizes and, as a layer, at equal weights;
* ``no indexer``: the same without its choice of entries, which here takes all of them.

``plain`` is the lab's default design (no sink, queries without a bottleneck), against eager alone.
Every repetition runs all of them in a random order. A ratio is the median over the repetitions of
their time over ours; its interval holds the medians of 95% of resampled repetitions.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import math
import os
import platform
import random
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch  # noqa: TID253 - nothing here runs without it
from torch import Tensor, nn  # noqa: TID253

from kvphase.lab.compressors import ChunkedConfig, DSV4Config
from kvphase.lab.model_config import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
SHAPES = ((8, 256), (2, 1024))
LENGTHS = (1024, 2048, 4096, 8192)
AIMS = {"eager": 3.0, "transformers": 2.0, "exponent": 1.3}


# --- the oracle


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


# --- what is timed


class Contestant(NamedTuple):
    """One way to compute ``x -> y``."""

    run: Callable[[Tensor], Tensor]
    module: nn.Module


def their_layer(model: Any, layer: nn.Module, length: int) -> Contestant:  # noqa: ANN401
    """Their attention alone; its angles and sliding mask are made beforehand, not timed."""
    positions = torch.arange(length)[None]
    like = torch.zeros(1, length, DEEPSEEK.width)
    turns = {
        kind: model.model.rotary_emb(like, position_ids=positions, layer_type=kind)
        for kind in ("main", "compress")
    }
    distance = positions[0][:, None] - positions[0]
    near = (distance >= 0) & (distance < DEEPSEEK.local_window)
    mask = torch.zeros(length, length).masked_fill(~near, float("-inf"))[None, None]

    def run(x: Tensor) -> Tensor:
        near = mask.expand(len(x), -1, -1, -1)
        read = layer(x, position_embeddings=turns, position_ids=positions, attention_mask=near)
        update: Tensor = read[0]
        return update

    return Contestant(run, layer)


def layers(length: int) -> dict[str, dict[str, Contestant]]:
    """Everybody's attention layer for texts of ``length`` tokens, by family."""
    model = deepseek(length)
    found: dict[str, dict[str, Contestant]] = {}
    for family, config in (("deepseek", DEEPSEEK), ("plain", PLAIN)):
        ours = config.build(0).attentions[0]
        if family == "deepseek":
            borrow(model.model.layers[0].self_attn, ours)
        eager = Eager(copy.deepcopy(ours))
        found[family] = {
            "ours": Contestant(lambda x, m=ours: m(x, {})[0], ours),  # type: ignore[misc]
            "eager": Contestant(lambda x, m=eager: m(x, {})[0], eager),  # type: ignore[misc]
        }
    layer = model.model.layers[0].self_attn
    found["deepseek"]["transformers"] = their_layer(model, layer, length)
    found["deepseek"]["no indexer"] = their_layer(model, without_indexer(layer), length)
    return found


def decoders(length: int) -> dict[str, dict[str, Contestant]]:
    """Everybody's decoder of two layers, ids to logits, by family."""
    found: dict[str, dict[str, Contestant]] = {}
    for family, config in (("deepseek", DEEPSEEK), ("plain", PLAIN)):
        ours = config.build(0)
        eager = eager_decoder(ours)
        found[family] = {"ours": Contestant(ours, ours), "eager": Contestant(eager, eager)}
    for name, model in (
        ("transformers", deepseek(length)),
        ("no indexer", without_indexer(deepseek(length))),
    ):
        found["deepseek"][name] = Contestant(
            lambda ids, m=model: m(ids).logits,  # type: ignore[misc]
            model,
        )
    return found


def draw(kind: str, batch: int, length: int) -> Tensor:
    """The input of a contestant: layer inputs ``[B, T, D]`` or ids ``[B, T]``."""
    seeded = torch.Generator().manual_seed(1)
    if kind == "decoder":
        return torch.randint(PLAIN.vocab_size, (batch, length), generator=seeded)
    return torch.randn(batch, length, PLAIN.width, generator=seeded).requires_grad_()


class Took(NamedTuple):
    """Seconds of one forward and backward."""

    forward: float
    backward: float
    processor: float
    """Both, as time of this process on processors: other load on the machine counts less."""

    @property
    def wall(self) -> float:
        """Both, by the clock on the wall."""
        return self.forward + self.backward


def once(contestant: Contestant, x: Tensor) -> Took:
    """One forward and backward with fresh gradients."""
    x.grad = None
    contestant.module.zero_grad(set_to_none=True)
    begun, cpu = time.perf_counter(), time.process_time()
    y = contestant.run(x)
    middle, cpu_middle = time.perf_counter(), time.process_time()
    gradient = torch.ones_like(y)  # not timed
    again, cpu_again = time.perf_counter(), time.process_time()
    y.backward(gradient)  # type: ignore[no-untyped-call]
    ended, cpu_ended = time.perf_counter(), time.process_time()
    return Took(middle - begun, ended - again, cpu_ended - cpu_again + cpu_middle - cpu)


def rounds(jobs: dict[str, tuple[Contestant, Tensor]], repeats: int) -> dict[str, list[Took]]:
    """Times of every job, repetition by repetition in a random order, after one unmeasured."""
    order, rng = list(jobs), random.Random(0)  # noqa: S311
    took: dict[str, list[Took]] = {name: [] for name in jobs}
    for repeat in range(repeats + 1):
        rng.shuffle(order)
        for name in order:
            one = once(*jobs[name])
            if repeat:
                took[name].append(one)
    return took


# --- what is reported


def interval(statistic: Callable[[list[int]], float], count: int) -> list[float]:
    """The statistic of all ``count`` repetitions, then where 95% of its resamples lie."""
    rng = random.Random(0)  # noqa: S311
    drawn = sorted(statistic(rng.choices(range(count), k=count)) for _ in range(1000))
    return [round(each, 3) for each in (statistic(list(range(count))), drawn[25], drawn[974])]


def against(ours: Sequence[Took], theirs: Sequence[Took]) -> dict[str, list[float]]:
    """Ratios of their time over ours: ``[median, low, high]`` by clock and by processor time."""
    return {
        clock: interval(
            lambda rows, clock=clock: statistics.median(  # type: ignore[misc]
                getattr(theirs[row], clock) / getattr(ours[row], clock) for row in rows
            ),
            len(ours),
        )
        for clock in ("wall", "processor")
    }


def milliseconds(took: Sequence[Took]) -> dict[str, float]:
    """Medians."""
    return {
        field: round(1e3 * statistics.median(getattr(one, field) for one in took), 2)
        for field in ("forward", "backward", "processor")
    }


def race(kind: str, batch: int, length: int, repeats: int) -> list[dict[str, Any]]:
    """Times and ratios of layers or decoders of one shape, all in one run."""
    families = (decoders if kind == "decoder" else layers)(length)
    jobs = {
        f"{family}/{name}": (one, draw(kind, batch, length))
        for family, members in families.items()
        for name, one in members.items()
    }
    took = rounds(jobs, repeats)
    rows = []
    for family, members in families.items():
        mine = took[f"{family}/ours"]
        for name in members:
            theirs = took[f"{family}/{name}"]
            row = {"kind": kind, "batch": batch, "tokens": length, "family": family, "who": name}
            rows.append({**row, "ms": milliseconds(theirs), "over_ours": against(mine, theirs)})
    return rows


def growth(kind: str, lengths: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """How time grows with the text at batch one; ``local`` is the same layer without entries."""
    rows = []
    for name, config in (("deepseek", DEEPSEEK), ("plain", PLAIN), ("local", LOCAL)):
        model = config.build(0)
        layer = model.attentions[0]
        one = Contestant(model, model)
        if kind == "layer":
            one = Contestant(lambda x, m=layer: m(x, {})[0], layer)  # type: ignore[misc]
        took = rounds({str(n): (one, draw(kind, 1, n)) for n in lengths}, repeats)
        medians = {n: milliseconds(took[str(n)]) for n in lengths}
        row: dict[str, Any] = {"kind": kind, "family": name, "ms": medians, "exponent": {}}
        for clock in ("wall", "processor"):
            times = [[getattr(one, clock) for one in took[str(n)]] for n in lengths]
            row["exponent"][clock] = interval(
                lambda rows, times=times: slope(  # type: ignore[misc]
                    lengths, [statistics.median(each[row] for row in rows) for each in times]
                ),
                repeats,
            )
        rows.append(row)
    return rows


def slope(lengths: Sequence[int], times: Sequence[float]) -> float:
    """The exponent ``p`` of the least squares fit of ``log time`` by ``p log length + c``."""
    fit = statistics.linear_regression([math.log(n) for n in lengths], [math.log(t) for t in times])
    return fit.slope


def differences(length: int) -> dict[str, float]:
    """The largest difference from ours, relative to its spread, in outputs and gradients of x."""
    found = {}
    for family, members in layers(length).items():
        results = {}
        for name, one in members.items():
            x = draw("layer", 2, length)
            y = one.run(x)
            y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(2)))  # type: ignore[no-untyped-call]
            results[name] = (y.detach(), x.grad)
        for name, pair in results.items():
            for what, theirs, ours in zip(("y", "dx"), pair, results["ours"], strict=True):
                assert theirs is not None  # noqa: S101
                assert ours is not None  # noqa: S101
                off = (theirs - ours).abs().max() / ours.std()
                found[f"{family}/{name} {what}"] = round(off.item(), 7)
    return found


def profile(kind: str, config: ModelConfig, batch: int, length: int) -> str:
    """A table of ours by operation."""
    model = config.build(0)
    layer = model.attentions[0]
    one = Contestant(model, model)
    if kind == "layer":
        one = Contestant(lambda x: layer(x, {})[0], layer)
    x = draw(kind, batch, length)
    once(one, x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        for _ in range(3):
            once(one, x)
    table = found.key_averages().table(
        sort_by="self_cpu_time_total", row_limit=24, max_name_column_width=60
    )
    return f"\n{kind} B{batch} T{length}, three times forward and backward\n{table}\n"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.import_module("transformers").__version__,
        "load": [round(each, 1) for each in os.getloadavg()],
    }


def lines(result: dict[str, Any]) -> str:
    """The result for people."""
    text = [json.dumps(result["machine"]), json.dumps(result["differences"])]
    for row in result["races"]:
        ratio = "".join(
            f"  {clock} {m:5.2f} ({low:.2f} to {high:.2f})"
            for clock, (m, low, high) in row["over_ours"].items()
        )
        text.append(
            f"{row['kind']:8}B{row['batch']} T{row['tokens']:<5}{row['family']:9}{row['who']:13}"
            f"{row['ms']['forward']:8.1f} +{row['ms']['backward']:7.1f} ms{ratio}"
        )
    for row in result["growth"]:
        by = ", ".join(f"{n}: {ms['processor']:.0f}" for n, ms in row["ms"].items())
        power = row["exponent"]
        text.append(
            f"{row['kind']:8}{row['family']:9}exponent {power['processor']} of processor time,"
            f" {power['wall']} by the clock (ms by tokens: {by})"
        )
    return "\n".join(text) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.profile:
        for batch, length in (*SHAPES, (1, LENGTHS[-1])):
            sys.stdout.write(profile("layer", DEEPSEEK, batch, length))
        return
    shapes, lengths, repeats = SHAPES, LENGTHS, options.repeats
    if options.quick:
        shapes, lengths, repeats = ((2, 64),), (128, 256), 3
    result = {
        "command": "python benchmarks/lab.py"
        f" --threads {options.threads} --repeats {repeats}{' --quick' * options.quick}",
        "aims": AIMS,
        "machine": machine(),
        "differences": differences(shapes[-1][1]),
        "races": [
            row
            for kind in ("layer", "decoder")
            for batch, length in shapes
            for row in race(kind, batch, length, repeats)
        ],
        "growth": [
            row
            for kind in ("layer", "decoder")
            for row in growth(kind, lengths, max(3, repeats // 3))
        ],
    }
    sys.stdout.write(lines(result))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
