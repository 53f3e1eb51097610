"""What every compressor must satisfy, checked on a small random model in double precision.

* *Causality*: changing a token changes no output before it.
* *Cache*: decoding token by token, and in pieces, gives what one evaluation gives.
* *Memory*: a token far back still reaches the last output.
* *Gradients*: every parameter has some.

A design that passes can be trained, and evaluated from a prefix cache.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from kvphase.lab.model_config import ModelConfig
    from kvphase.lab.transformer import Decoder

__all__ = ["verify"]

TOLERANCE = 1e-9  # of logits in double precision
WORDS = 40  # vocabulary of the small model
WIDTH = 32
CHANGED = 12  # tokens changed, one at a time


def verify(config: ModelConfig, seed: int = 0) -> list[str]:
    """Return what is wrong with the compressor of ``config``; empty if nothing was found.

    Args:
        config: The model. It is checked with a small vocabulary, width and MLP; layers, heads and
            options stay as they are.
        seed: Of the weights and the text.
    """
    model = replace(config, vocab_size=WORDS, width=WIDTH, mlp_width=WIDTH).build(seed).double()
    windows = [a.compressor.window for a in model.attentions if a.compressor is not None]
    # three windows and a bit, so that the last one is open, and past the local window twice
    length = max([32, 3 * max(windows, default=1) + 5, 2 * config.local_window + 5])
    ids = torch.randint(WORDS, (2, length), generator=torch.Generator().manual_seed(seed))
    problems = list(_shapes(model, length))
    if problems:
        return problems
    with torch.no_grad():
        whole = model(ids)
    if not whole.isfinite().all():
        return ["outputs: not all are finite"]
    # a cache cannot agree with an evaluation that looks ahead: that says nothing more
    problems = list(_causality(model, ids, whole)) or list(_cache(model, ids, whole))
    return [*problems, *_memory(model, ids, whole), *_gradients(model, ids)]


def _shapes(model: Decoder, length: int) -> Iterable[str]:
    for attention in model.attentions:
        one = attention.compressor
        if one is None:
            continue
        with torch.no_grad():
            made = one(torch.zeros(2, length, WIDTH, dtype=torch.double))
        count = length // one.stride if one.stride else made.shape[1]
        if tuple(made.shape) != (2, count, one.entry):
            yield (
                f"shapes: forward returns {list(made.shape)} for {length} tokens, not"
                f" [2, {count}, {one.entry}] (batch, entries, numbers of one: `entry`)"
            )
            return


def _causality(model: Decoder, ids: Tensor, whole: Tensor) -> Iterable[str]:
    for place in torch.linspace(0, ids.shape[1] - 1, CHANGED).long().tolist():
        moved = (_with_change(model, ids, place) - whole)[:, :place].abs().flatten(2).amax((0, 2))
        if (moved > 0).any():
            first = int(moved.nonzero()[0])
            yield f"causality: changing token {place} changes the output at token {first}"
            return


def _cache(model: Decoder, ids: Tensor, whole: Tensor) -> Iterable[str]:
    length = ids.shape[1]
    cuts = (*range(length), length), (0, 1, length // 3, length - 2, length)
    for name, where in zip(("token by token", "in pieces"), cuts, strict=True):
        cache = model.start(len(ids))
        parts = [model.extend(cache, ids[:, a:b]) for a, b in pairwise(where)]
        apart = (torch.cat(parts, 1) - whole).abs().amax((0, 2))
        if (apart > TOLERANCE).any():
            first = int((apart > TOLERANCE).nonzero()[0])
            yield (
                f"cache: decoding {name} differs from one evaluation from token {first} on; does an"
                " entry read more than `window` tokens, or stand off the grid of `stride`?"
            )


def _memory(model: Decoder, ids: Tensor, whole: Tensor) -> Iterable[str]:
    for place in range(4):
        if not (_with_change(model, ids, place) - whole)[:, -1].abs().amax() > 0:
            yield f"memory: token {place} never reaches the last output"
            return


def _with_change(model: Decoder, ids: Tensor, place: int) -> Tensor:
    """Logits of ``ids`` with another token at ``place``."""
    changed = ids.clone()
    changed[:, place] = (changed[:, place] + 1) % WORDS
    with torch.no_grad():
        logits: Tensor = model(changed)
    return logits


def _gradients(model: Decoder, ids: Tensor) -> Iterable[str]:
    model(ids).square().sum().backward()
    for name, weight in model.named_parameters():
        if weight.grad is None:
            yield f"gradients: {name} has none"
        elif not weight.grad.isfinite().all():
            yield f"gradients: that of {name} is not finite"
