"""Batched answers are those of the runtime that ``kvphase check lab:FOLDER`` asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from kvphase.errors import UsageError
from kvphase.lab.batches import answer, plan
from kvphase.lab.checkpoint import load_checkpoint
from kvphase.lab.compressors import ChunkedConfig, DSV41Config, NoneConfig
from kvphase.lab.experiment import TrainConfig
from kvphase.lab.model_config import ModelConfig
from kvphase.lab.runtime import open_checkpoint
from kvphase.lab.train import Trainer
from kvphase.probes.design import NeedleDesign

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.lab.compressors import CompressorConfig
    from kvphase.probes.needle import NeedlePlan
    from kvphase.types import DesignKind, Reply


def small(kind: DesignKind, *, dense: bool) -> NeedleDesign:
    return NeedleDesign(kind, 430, 24, 3, 8, 4, 16, repeats=0, cold=0, alone=0, dense=dense)


def one_by_one(folder: Path, asked: NeedlePlan) -> list[Reply]:
    async def ask_all() -> list[Reply]:
        async with open_checkpoint(folder) as runtime:
            return [await runtime.complete(ask) for batch in asked.batches() for ask in batch]

    return asyncio.run(ask_all())


@pytest.mark.parametrize("kind", ["insequence", "prefix"])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    "compressor",
    [ChunkedConfig(window=6, stride=4, maps="slot"), DSV41Config(), NoneConfig()],
    ids=lambda config: config.name,
)
def test_the_answers_are_those_of_the_runtime(
    tmp_path: Path, compressor: CompressorConfig, kind: DesignKind, dense: bool
) -> None:
    config = ModelConfig(
        vocab_size=231,
        width=16,
        heads=2,
        head_dim=8,
        mlp_width=16,
        rope_dims=4,
        compressor=compressor,
    )
    trainer = Trainer(config, TrainConfig(steps=1), tmp_path)
    trainer.run()
    asked = plan(small(kind, dense=dense), 3)
    got = answer(load_checkpoint(tmp_path / "checkpoint.safetensors")[0], asked)
    replies = one_by_one(tmp_path, asked)
    asks = [ask for batch in asked.batches() for ask in batch]
    assert got.position.tolist() == [ask.target for ask in asks]
    assert got.item.tolist() == [ask.item for ask in asks]
    assert got.text.tolist() == [reply.text for reply in replies]
    assert len(set(got.text.tolist())) > 1
    expected = [ask.expected == reply.text for ask, reply in zip(asks, replies, strict=True)]
    assert got.correct.tolist() == expected
    logprobs = np.array([reply.logprob for reply in replies], float)
    assert np.allclose(got.logprob, logprobs, rtol=0, atol=1e-4)


def test_a_design_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="context"):
        plan(NeedleDesign("insequence", 100, 24, 2), 0)


def test_asking_leaves_no_gradients() -> None:
    model = ModelConfig(vocab_size=231, width=16, heads=2, head_dim=8, mlp_width=16, rope_dims=4)
    decoder = model.build(0)
    answer(decoder, plan(small("insequence", dense=True), 0))
    assert decoder.embedding.weight.dtype == torch.float64
    assert decoder.embedding.weight.grad is None
