"""How fast the lab's attention is: against plain operations, against transformers, as texts grow.

    python benchmarks/lab.py [--json benchmarks/results/lab.json] [--threads 1] [--repeats 40]
    python benchmarks/lab.py --profile         where the time goes, by operation
    python benchmarks/lab.py --quick           seconds: all compute the same, ratios come out

Forward and backward of one attention layer and of a decoder of two, W8/S4, by

* ``ours``: `kvphase.lab.attention.Attention`, one boolean mask, fused attention in blocks;
* ``eager``: `attentions.Eager`, the oracle: explicit scores, mask and softmax over the whole text;
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch  # noqa: TID253 - nothing here runs without it
from attentions import (
    DEEPSEEK,
    LOCAL,
    PLAIN,
    Eager,
    borrow,
    deepseek,
    eager_decoder,
    without_indexer,
)
from torch import Tensor, nn  # noqa: TID253

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvphase.lab.model_config import ModelConfig


SHAPES = ((8, 256), (2, 1024))
LENGTHS = (1024, 2048, 4096, 8192)
AIMS = {"eager": 3.0, "transformers": 2.0, "exponent": 1.3}


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
