from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from kvphase.lab.compressors import NoneConfig
from kvphase.lab.train import TrainConfig, Trainer, learning_rate, load_checkpoint
from kvphase.lab.transformer import ModelConfig

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ModelConfig(vocab_size=231, width=32, heads=2, head_dim=16, mlp_width=32, rope_dims=8)
BUDGET = TrainConfig(
    steps=60, tokens=300, questions=8, warmup=10, levels=(2, 4), climb=5, dense_share=0.3
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    trainer = Trainer(MODEL, BUDGET, tmp_path)
    losses = [trainer.step()["loss"] for _ in range(50)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.3


def test_a_resumed_run_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    budget = replace(BUDGET, steps=24)
    whole = Trainer(MODEL, budget, tmp_path / "whole")
    whole.run(every=5)
    parts = Trainer(MODEL, budget, tmp_path / "parts")
    parts.run(every=5, until=9)
    for _ in range(3):  # lost: the process dies before the next checkpoint
        parts.step()
    parts = Trainer(MODEL, budget, tmp_path / "parts")
    assert parts.done == 9
    parts.run(every=5)
    assert parts.done == whole.done == 24
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, parts.model.state_dict()[name]), name


@pytest.mark.slow
def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvphase.lab.train", "--design", "w8s4", "--width", "16"]
    command += ["--head-dim", "16", "--rope-dims", "8", "--steps", "30", "--tokens", "100"]
    command += ["--every", "5", "--levels"]

    def run(folder: Path) -> list[str]:
        return [*command, "2", "--out", str(folder)]

    subprocess.run(run(tmp_path / "whole"), check=True)
    process = subprocess.Popen(run(tmp_path / "killed"))
    log = tmp_path / "killed" / "log.jsonl"
    while not log.exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(run(tmp_path / "killed"), check=True)
    one, two = (
        load_checkpoint(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "killed")
    )
    assert one[1] == two[1]
    assert two[1]["step"] == 30
    for name, weight in one[0].state_dict().items():
        assert torch.equal(weight, two[0].state_dict()[name]), name


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    Trainer(MODEL, BUDGET, tmp_path).save()
    with pytest.raises(ValueError, match="another train_config"):
        Trainer(MODEL, replace(BUDGET, lr=1.0), tmp_path)
    with pytest.raises(ValueError, match="another model_config"):
        Trainer(replace(MODEL, layers=3), BUDGET, tmp_path)


def test_the_log_has_a_line_per_interval(tmp_path: Path) -> None:
    Trainer(MODEL, replace(BUDGET, steps=7), tmp_path).run(every=3)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6, 7]
    assert all(len(line["by_residue_mod_8"]) == 8 for line in lines)


def test_levels_open_one_after_the_other(tmp_path: Path) -> None:
    budget = replace(BUDGET, levels=(2, 4, 8), climb=4, dense_share=0.0)
    trainer = Trainer(MODEL, budget, tmp_path)
    asked = [trainer.step()["records"] for _ in range(30)]
    assert set(asked[:4]) == {2}
    assert set(asked[4:8]) <= {2, 4}
    assert set(asked[8:]) == {2, 4, 8}


def test_all_models_of_a_comparison_see_the_same_data(tmp_path: Path) -> None:
    one = Trainer(MODEL, BUDGET, tmp_path / "one")
    two = Trainer(replace(MODEL, compressor=NoneConfig()), BUDGET, tmp_path / "two")
    for _ in range(12):
        left, right = one.step(), two.step()
        assert left["records"] == right["records"]
        np.testing.assert_array_equal(left["asked"], right["asked"])


def test_learning_rate_rises_and_holds() -> None:
    budget = TrainConfig(steps=100, warmup=10, lr=1.0)
    rates = [learning_rate(step, budget) for step in (0, 4, 9, 99)]
    assert rates == pytest.approx([0.1, 0.5, 1.0, 1.0])
