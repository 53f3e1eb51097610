from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kvphase.cli.lab import lab
from kvphase.errors import UsageError
from kvphase.lab.command import parse_rates

if TYPE_CHECKING:
    from pathlib import Path

TINY = """
model: {width: 16, heads: 2, head_dim: 16, rope_dims: 8, mlp_width: 16}
train: {steps: 12, tokens: 200, levels: [6], warmup: 2}
"""


def run(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(lab, ["train", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return str(tmp_path / "tiny.yaml")


def test_a_sweep_picks_by_held_out_loss_and_seeds_are_trained(tmp_path: Path, config: str) -> None:
    out = tmp_path / "out"
    arguments = [config, "--out", str(out), "--sweep", "1e-2,1e-9", "--sweep-steps", "10"]
    stdout, stderr = run(*arguments, "--seeds", "2", "--every", "4", "--json")
    found = json.loads(stdout)
    losses = found["sweep"]["held_out_loss"]
    assert losses["0.01"] < losses["1e-09"]
    assert found["sweep"]["picked"] == 0.01
    assert [one["folder"] for one in found["runs"]] == [str(out / f"seed-{n}") for n in (0, 1)]
    assert [one["steps"] for one in found["runs"]] == [12, 12]
    assert json.loads((out / "seed-1" / "results.json").read_text()) == found["runs"][1]
    assert set(found["runs"][0]["results"]) <= {"insequence", "prefix"}
    assert "step 12/12: " in stderr
    assert "gap" in stderr
    again, told = run(*arguments, "--seeds", "2", "--every", "4", "--json")
    assert json.loads(again) == found
    assert "going on from step 12" in told


def test_the_result_reads_as_lines(tmp_path: Path, config: str) -> None:
    stdout, _ = run(config, "--out", str(tmp_path / "out"), "--set", "train.levels=[12]")
    assert "12 steps, held-out loss" in stdout
    assert "by residue mod 4:" in stdout


def test_too_few_records_to_ask_are_no_error(tmp_path: Path, config: str) -> None:
    stdout, _ = run(config, "--out", str(tmp_path / "out"), "--set", "train.levels=[2]")
    assert "residue" not in stdout


def test_a_dry_run_shows_sizes_without_memory() -> None:
    stdout, _ = run("paper", "--dry-run", "--json")
    found = json.loads(stdout)
    assert found["parameters"] > 1e9
    assert found["cached_numbers_per_token"] == 28 * 2 * 1024 / 8
    stdout, _ = run("toy-full", "--dry-run")
    assert "64 cached numbers a token" in stdout


@pytest.mark.parametrize("device", ["cuda:77", "abacus"])
def test_a_device_that_is_not_there_is_refused(tmp_path: Path, config: str, device: str) -> None:
    with pytest.raises(UsageError, match=f"--device {device} cannot be used here"):
        run(config, "--out", str(tmp_path / "out"), "--device", device)


@pytest.mark.parametrize("rates", ["", "fast", "1e-3,-1", "1e-3,,", "nan", "inf"])
def test_rates_that_are_none_are_refused(rates: str) -> None:
    with pytest.raises(UsageError, match="write learning rates as"):
        parse_rates(rates)


def test_verify_says_what_holds(config: str) -> None:
    result = CliRunner().invoke(lab, ["verify", config])
    assert (result.exit_code, result.stdout) == (
        0,
        "chunked: causality, cache, memory and gradients hold\n",
    )


def test_a_sweep_survives_a_rate_that_is_too_high(tmp_path: Path, config: str) -> None:
    out = str(tmp_path / "out")
    stdout, _ = run(config, "--out", out, "--sweep", "1e30,1e-3", "--sweep-steps", "9", "--json")
    sweep = json.loads(stdout)["sweep"]
    assert sweep["picked"] == 1e-3
    assert sweep["held_out_loss"]["1e+30"] is None
    with pytest.raises(UsageError, match="finite at every learning rate"):
        run(config, "--out", f"{out}2", "--sweep", "1e30", "--sweep-steps", "9")
