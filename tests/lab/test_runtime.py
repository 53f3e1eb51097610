from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from kvphase.errors import UsageError
from kvphase.lab.compressors import ChunkedConfig, NoneConfig
from kvphase.lab.evaluate import evaluate
from kvphase.lab.experiment import DataConfig, TrainConfig
from kvphase.lab.export import export
from kvphase.lab.model_config import ModelConfig
from kvphase.lab.runtime import LabModel, open_checkpoint
from kvphase.lab.train import Trainer
from kvphase.runtimes.toy_model import ToyModel
from kvphase.types import Arm, Ask, Runtime

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ModelConfig(vocab_size=231, width=32, heads=2, head_dim=16, mlp_width=32, rope_dims=8)
PROMPT = (0, 5, 1, 99, 2, *range(10, 40), 7, 1, 101, 2)


def ask(arm: Arm = Arm.SCREEN) -> Ask:
    return Ask(
        id="a",
        prefix=PROMPT,
        suffix=(5, 1),
        target=1,
        expected=" Alice",
        candidates=(" Alice",),
        arm=arm,
        item=0,
        block=0,
        context=0,
        pad=0,
    )


def test_a_checkpoint_answers_as_a_runtime(tmp_path: Path) -> None:
    trainer = Trainer(replace(MODEL, local_window=9), TrainConfig(steps=2), tmp_path / "mine")
    trainer.save()

    async def answers(path: Path) -> None:
        async with open_checkpoint(path) as runtime:
            assert isinstance(runtime, Runtime)
            assert runtime.traffic == 0
            assert runtime.limits.local_window == 9
            assert runtime.limits.bos == (0,)
            about = runtime.about
            assert (about.target, about.runtime, about.toy) == ("lab:mine", "lab", False)
            assert about.model is not None
            assert about.model.startswith("mine ")
            assert str(tmp_path) not in repr(about)
            first, again = await runtime.complete(ask()), await runtime.complete(ask())
            cold = await runtime.complete(ask(Arm.COLD))
            assert [first.cached, again.cached, cold.cached] == [0, len(PROMPT), 0]
            assert first.logprob is not None
            assert first.logprob == pytest.approx(again.logprob, abs=1e-9)
            assert first.logprob == pytest.approx(cold.logprob, abs=1e-6)
            whole = torch.tensor([[*PROMPT, 5, 1]])
            with torch.no_grad():
                scores = trainer.model.double()(whole)[0, -1].log_softmax(0)
            (expected,) = await runtime.tokenize([" Alice"])
            assert first.logprob == pytest.approx(float(scores[expected[0]]), abs=1e-6)
            with pytest.raises(UsageError, match="lab:mine has no chat template"):
                await runtime.template()

    asyncio.run(answers(tmp_path / "mine"))
    asyncio.run(answers(tmp_path / "mine" / "checkpoint.safetensors"))


def opened(path: Path) -> None:
    async def enter() -> None:
        async with open_checkpoint(path):
            pass

    asyncio.run(enter())


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no checkpoint"):
        opened(tmp_path / "none.safetensors")
    with pytest.raises(UsageError, match=r"there is no checkpoint.safetensors in"):
        opened(tmp_path)
    (tmp_path / "a.txt").write_text("text " * 100)
    data = DataConfig(kind="text", files=(str(tmp_path / "a.txt"),), length=32)
    model = replace(MODEL, vocab_size=256)
    Trainer(model, TrainConfig(), tmp_path / "seed-0", data).save()
    with pytest.raises(UsageError, match=r"name one of .*seed-0"):
        opened(tmp_path)
    with pytest.raises(UsageError, match="was trained on text"):
        opened(tmp_path / "seed-0")


@pytest.mark.parametrize("design", [ChunkedConfig(4, 4, "scalar", "slot"), NoneConfig()])
def test_torch_and_numpy_answer_alike(tmp_path: Path, design: ChunkedConfig | NoneConfig) -> None:
    model = replace(MODEL, tied_kv=False, compressor=design).build(1)
    export(model.half().float(), tmp_path / "a.npz")
    lab, toy = LabModel(model), ToyModel.load(tmp_path / "a.npz")
    text = np.random.default_rng(0).integers(231, size=100).tolist()
    np.testing.assert_allclose(
        lab.extend(lab.start(), text), toy.extend(toy.start(), text), atol=2e-5
    )
    one, two = (evaluate(each, 6, "insequence", 2, 0) for each in (lab, toy))
    np.testing.assert_array_equal(one.correct, two.correct)


def test_a_tail_is_as_long_as_the_coarsest_stride(tmp_path: Path) -> None:
    model = replace(MODEL, tail=True, compressor=ChunkedConfig(12, 12, "scalar", "slot"))
    assert LabModel(model.build(0)).local_window == 12
    with pytest.raises(UsageError, match="only torch runs models with these settings: tail"):
        export(model.build(0), tmp_path / "a.npz")
