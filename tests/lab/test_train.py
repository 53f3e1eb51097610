from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from kvphase.errors import UsageError
from kvphase.lab.checkpoint import load_checkpoint, read_checkpoint
from kvphase.lab.compressors import ChunkedConfig, NoneConfig
from kvphase.lab.experiment import DataConfig, TrainConfig, read_experiment
from kvphase.lab.model_config import ModelConfig
from kvphase.lab.train import Curriculum, Trainer, learning_rate, modulus_of

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ModelConfig(vocab_size=231, width=32, heads=2, head_dim=16, mlp_width=32, rope_dims=8)
BUDGET = TrainConfig(
    steps=60, tokens=300, questions=8, warmup=10, levels=(2, 4), climb=5, dense_share=0.3
)
TINY = "model: {width: 16, heads: 2, head_dim: 16, rope_dims: 8, mlp_width: 16}\n"
TINY += "train: {steps: 30, tokens: 100, levels: [2]}\n"


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
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    command = [sys.executable, "-m", "kvphase", "lab", "train", str(config), "--every", "5"]

    def run(folder: str) -> list[str]:
        return [*command, "--out", str(tmp_path / folder)]

    subprocess.run(run("whole"), check=True, capture_output=True)
    process = subprocess.Popen(run("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "killed" / "log.jsonl"
    while not log.exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(run("killed"), check=True, capture_output=True)
    one, two = (
        load_checkpoint(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "killed")
    )
    assert one[1] == two[1]
    assert two[1]["step"] == 30
    for name, weight in one[0].state_dict().items():
        assert torch.equal(weight, two[0].state_dict()[name]), name
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == [5, 10, 15, 20, 25, 30]


def test_lines_of_lost_steps_leave_the_log(tmp_path: Path) -> None:
    trainer = Trainer(MODEL, replace(BUDGET, steps=9), tmp_path)
    trainer.run(every=3, until=6)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write(json.dumps({"step": 9}) + '\n{"step": 1')  # killed while it wrote
    Trainer(MODEL, replace(BUDGET, steps=9), tmp_path).run(every=3)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [3, 6, 9]


def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    Trainer(MODEL, replace(BUDGET, steps=4), tmp_path / "parts").run()
    longer = Trainer(MODEL, replace(BUDGET, steps=8), tmp_path / "parts")
    whole = Trainer(MODEL, replace(BUDGET, steps=8), tmp_path / "whole")
    assert longer.done == 4
    longer.run()
    whole.run()
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, longer.model.state_dict()[name]), name


@pytest.mark.parametrize("dense_share", [0.0, 1.0])
def test_resuming_keeps_the_curriculum(tmp_path: Path, dense_share: float) -> None:
    budget = replace(BUDGET, up_at=0.02, levels=(1, 2, 4), steps=60, dense_share=dense_share)
    whole = Trainer(MODEL, budget, tmp_path / "whole")
    whole.run(every=7)
    parts = Trainer(MODEL, budget, tmp_path / "parts")
    parts.run(every=7, until=25)
    parts = Trainer(MODEL, budget, tmp_path / "parts")
    parts.run(every=7)
    assert parts.curriculum.opened == whole.curriculum.opened > 1
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, parts.model.state_dict()[name]), name


def test_a_level_opens_once_the_highest_is_learnt() -> None:
    curriculum = Curriculum(TrainConfig(levels=(2, 4, 8), up_at=0.7))
    for _ in range(9):
        curriculum.note(2, 0.9)
    assert curriculum.at(500) == 1
    curriculum.note(0, 1.0)  # dense records do not count
    assert curriculum.at(500) == 1
    curriculum.note(2, 0.9)
    assert curriculum.at(500) == 2
    for _ in range(20):
        curriculum.note(4, 0.6)
        curriculum.note(2, 1.0)
    assert curriculum.at(500) == 2
    for _ in range(10):
        curriculum.note(4, 0.7)
    assert curriculum.at(500) == 3
    for _ in range(20):
        curriculum.note(8, 1.0)
    assert curriculum.at(500) == 3


def test_a_loss_that_is_not_finite_stops_before_the_weights_are_hurt(tmp_path: Path) -> None:
    trainer = Trainer(MODEL, BUDGET, tmp_path)
    trainer.run(every=2, until=2)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    with torch.no_grad():
        trainer.model.norm.scale[0] = float("nan")
    with pytest.raises(UsageError, match=r"no longer finite at step 3: lower train.lr"):
        trainer.run(every=2)
    settings, tensors = read_checkpoint(tmp_path / "checkpoint.safetensors")
    assert settings["step"] == 2
    for name, weight in before.items():
        assert torch.equal(tensors[f"model.{name}"], weight)


@pytest.mark.parametrize("limit", [0, 20_000])
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, limit: int) -> None:
    trainer = Trainer(MODEL, BUDGET, tmp_path)
    trainer.run(every=2, until=2)
    good = (tmp_path / "checkpoint.safetensors").read_bytes()
    old, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.SIG_IGN
    handler = signal.signal(signal.SIGXFSZ, ignored)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))  # no file may grow beyond that
    try:
        with pytest.raises(UsageError, match=r"could not be written .* intact"):
            trainer.run(every=2, until=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == good
    assert not list(tmp_path.glob("*.tmp"))
    again = Trainer(MODEL, BUDGET, tmp_path)
    assert again.done == 2


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(UsageError, match="there is no checkpoint"):
        load_checkpoint(path)
    trainer = Trainer(MODEL, BUDGET, tmp_path)
    trainer.save()
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:5], b"", b"PK\x03\x04" + whole):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match="not a checkpoint of kvphase, or is damaged"):
            Trainer(MODEL, BUDGET, tmp_path)
        assert path.read_bytes() == broken  # nobody's file is written over
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(UsageError, match="it lacks model_config"):
        load_checkpoint(path)
    save_file({"weight": torch.zeros(3)}, path, metadata={"step": "no JSON"})
    with pytest.raises(UsageError, match="damaged"):
        load_checkpoint(path)
    settings = {"model_config": MODEL.to_dict(), "train_config": {}, "step": 3}
    texts = {name: json.dumps(value) for name, value in settings.items()}
    save_file({"model.norm.scale": torch.zeros(3)}, path, metadata=texts)
    with pytest.raises(UsageError, match="does not hold the weights"):
        load_checkpoint(path)


def test_text_is_learnt_by_the_same_trainer(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 40)
    data = DataConfig(kind="text", files=(str(tmp_path / "a.txt"),), length=48)
    trainer = Trainer(replace(MODEL, vocab_size=256), BUDGET, tmp_path / "run", data)
    losses = [trainer.step()["loss"] for _ in range(40)]
    assert np.mean(losses[-5:]) < losses[0] - 2
    assert trainer.validate() < losses[0]
    trainer.save()
    assert Trainer(replace(MODEL, vocab_size=256), BUDGET, tmp_path / "run", data).done == 40


def test_the_modulus_shows_every_grid() -> None:
    def modulus(window: int, stride: int) -> int:
        design = ChunkedConfig(window, stride, "scalar", "slot")
        return modulus_of(replace(MODEL, compressor=design).build(0, "meta"))

    assert [modulus(4, 4), modulus(8, 6), modulus(12, 12)] == [4, 6, 12]
    assert modulus_of(replace(MODEL, compressor=NoneConfig()).build(0, "meta")) == 8


def test_the_papers_shape_fits_together_and_a_slice_of_it_trains(tmp_path: Path) -> None:
    experiment = read_experiment("paper")
    model = experiment.model.build(0, "meta")
    assert len(model.blocks) == 28
    assert model(torch.zeros(1, 40, dtype=torch.long, device="meta")).shape == (1, 40, 151936)
    (tmp_path / "a.txt").write_text("no text is too short for one step " * 10)
    data = replace(experiment.data, files=(str(tmp_path / "a.txt"),), length=64)
    slim = replace(experiment.model, layers=1, vocab_size=256, mlp_width=64)
    trainer = Trainer(slim, replace(experiment.train, tokens=64), tmp_path / "run", data)
    assert np.isfinite(trainer.step()["loss"])


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    Trainer(MODEL, BUDGET, tmp_path).save()
    with pytest.raises(UsageError, match=r"another train_config \(lr\)"):
        Trainer(MODEL, replace(BUDGET, lr=1.0), tmp_path)
    with pytest.raises(UsageError, match=r"another model_config \(layers\)"):
        Trainer(replace(MODEL, layers=3), BUDGET, tmp_path)


def test_the_log_has_a_line_per_interval(tmp_path: Path) -> None:
    Trainer(MODEL, replace(BUDGET, steps=7), tmp_path).run(every=3)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6, 7]
    assert all(len(line["by_residue"]) == line["modulus"] == 4 for line in lines)


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
        np.testing.assert_array_equal(left["asked"], right["asked"].reshape(2, 4).sum(0))


def test_learning_rate_rises_and_holds() -> None:
    budget = TrainConfig(steps=100, warmup=10, lr=1.0)
    rates = [learning_rate(step, budget) for step in (0, 4, 9, 99)]
    assert rates == pytest.approx([0.1, 0.5, 1.0, 1.0])
