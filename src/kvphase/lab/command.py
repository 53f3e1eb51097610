"""What ``kvphase lab train`` does: sweep, seeds, progress, and a first look at the result."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kvphase.errors import UsageError
from kvphase.lab.checkpoint import NAME, load_checkpoint
from kvphase.lab.evaluate import evaluate, summarise
from kvphase.lab.runtime import LabModel
from kvphase.lab.train import Trainer, modulus_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvphase.lab.data import Design
    from kvphase.lab.experiment import Experiment

__all__ = ["Options", "describe", "lines", "parse_rates", "train"]

DESIGNS: tuple[Design, ...] = ("insequence", "prefix")
CONTEXTS = 40  # fresh contexts per design that a trained model is asked
UNSEEN = 1_000_000  # seed of these contexts


@dataclass(frozen=True, slots=True)
class Options:
    """How to train, beside the experiment itself."""

    out: Path | None = None
    rates: tuple[float, ...] = ()
    """Learning rates of the sweep; empty: none."""
    sweep_steps: int = 300
    seeds: int = 1
    every: int = 100
    threads: int = 1
    device: str = "cpu"


def parse_rates(text: str) -> tuple[float, ...]:
    """Read ``3e-4,1e-3``.

    Raises:
        UsageError: One of them is no positive number.
    """
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise UsageError(f"--sweep {text}: write learning rates as 3e-4,1e-3,3e-3")
    return rates


def train(experiment: Experiment, options: Options) -> dict[str, Any]:
    """Train every seed, at the learning rate that the sweep picks; return what was found."""
    torch.set_num_threads(options.threads)
    _check_device(options.device)
    folder = options.out or Path("runs") / experiment.name
    found: dict[str, Any] = {"experiment": experiment.to_dict()}
    if options.rates:
        found["sweep"] = sweep(experiment, folder / "sweep", options)
        experiment = experiment.with_train(lr=found["sweep"]["picked"])
    runs = []
    for number in range(options.seeds):
        seed = experiment.train.seed + number
        place = folder if options.seeds == 1 else folder / f"seed-{seed}"
        runs.append(_one(experiment.with_train(seed=seed), place, options))
    return {**found, "runs": runs}


def _check_device(name: str) -> None:
    """Refuse a device that is not there.

    Raises:
        UsageError: naming the option.
    """
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        reason = str(error).splitlines()[0]
        raise UsageError(f"--device {name} cannot be used here: {reason}") from error


def sweep(experiment: Experiment, folder: Path, options: Options) -> dict[str, Any]:
    """Train shortly at every learning rate; pick the one of the lowest held-out loss.

    A rate whose loss stops being finite is out.
    """
    steps = min(options.sweep_steps, experiment.train.steps)
    losses: dict[str, float | None] = {}
    for rate in options.rates:
        short = experiment.with_train(lr=rate, steps=steps)
        trainer = _trainer(short, folder / f"lr-{rate:g}", options)
        try:
            trainer.run(options.every)
            losses[f"{rate:g}"] = round(trainer.validate(), 4)
        except UsageError as error:
            if "finite" not in str(error):
                raise
            losses[f"{rate:g}"] = None
        _tell(f"lr {rate:g}: held-out loss {losses[f'{rate:g}']} after {steps} steps")
    finite = {rate: loss for rate, loss in losses.items() if loss is not None}
    if not finite:
        raise UsageError("--sweep: the loss stopped being finite at every learning rate")
    picked = min(finite, key=lambda rate: finite[rate])
    return {"steps": steps, "held_out_loss": losses, "picked": float(picked)}


def _trainer(experiment: Experiment, folder: Path, options: Options) -> Trainer:
    return Trainer(experiment.model, experiment.train, folder, experiment.data, options.device)


def _one(experiment: Experiment, folder: Path, options: Options) -> dict[str, Any]:
    """One run, and the accuracy of its model on fresh contexts."""
    trainer = _trainer(experiment, folder, options)
    if trainer.done:
        _tell(f"{folder}: going on from step {trainer.done}")
    begun = trainer.done
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    steps, every = experiment.train.steps, options.every
    _tell(f"{experiment.name}: {weights:,} parameters, {steps} steps, a line every {every}")

    def watch(line: Mapping[str, Any]) -> None:
        _tell(_progress(line, experiment.train.steps, begun))

    trainer.run(options.every, watch=watch)
    found: dict[str, Any] = {
        "folder": str(folder),
        "seed": experiment.train.seed,
        "steps": trainer.done,
        "held_out_loss": round(trainer.validate(), 4),
    }
    if experiment.data.kind == "lookup":
        records = max(experiment.train.levels)
        found |= {"records": records, "modulus": trainer.modulus}
        found["results"] = _ask(folder / NAME, records, trainer.modulus)
    try:
        (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder}/results.json could not be written ({error.strerror}); the model is saved"
        ) from error
    return found


def _ask(checkpoint: Path, records: int, modulus: int) -> dict[str, Any]:
    """Ask fresh contexts of both designs; a design that leaves nothing to ask is left out."""
    model = LabModel(load_checkpoint(checkpoint)[0])
    results = {name: evaluate(model, records, name, CONTEXTS, UNSEEN) for name in DESIGNS}
    return {
        name: summarise(found, modulus) for name, found in results.items() if len(found.correct)
    }


def describe(experiment: Experiment) -> dict[str, Any]:
    """Return the sizes of the model, built without memory."""
    model = experiment.model.build(0, "meta")
    raw = experiment.model.kv_heads * experiment.model.head_dim
    per_token = 0.0
    for attention in model.attentions:
        if attention.window is None:
            per_token += raw * (1 if experiment.model.tied_kv else 2)
        elif attention.compressor is not None:
            per_token += attention.compressor.entry / (attention.compressor.stride or 1)
    return {
        "experiment": experiment.to_dict(),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "strides": list(model.strides),
        "modulus": modulus_of(model),
        "cached_numbers_per_token": round(per_token, 2),
    }


def lines(found: Mapping[str, Any]) -> str:
    """Return what was found as lines to read."""
    if "runs" not in found:
        return (
            f"{found['parameters']:,} parameters, strides {found['strides']},"
            f" {found['cached_numbers_per_token']:g} cached numbers a token"
        )
    text = []
    if "sweep" in found:
        text.append(f"learning rate {found['sweep']['picked']:g} picked by held-out loss")
    for run in found["runs"]:
        text.append(
            f"{run['folder']}: {run['steps']} steps, held-out loss {run['held_out_loss']:.3f}"
        )
        for design, result in run.get("results", {}).items():
            curve = result[f"by_residue_mod_{run['modulus']}"]
            text.append(
                f"  {design:10} {run['records']} records: mean {result['mean']:.1%},"
                f" gap {result['gap_pp']:.1f} points; by residue mod {run['modulus']}: "
                + " ".join(f"{100 * part:.0f}" for part in curve)
            )
    return "\n".join(text)


def _progress(line: Mapping[str, Any], steps: int, begun: int) -> str:
    """One line of progress with the time left."""
    done = line["step"] - begun
    left = (steps - line["step"]) * line["seconds"] / max(done, 1)
    task = f"{line['records']} records, " if line["records"] else ""
    return (
        f"step {line['step']}/{steps}: {task}loss {line['loss']:.3f},"
        f" accuracy {line['accuracy']:.0%}, gap {line['gap_pp']:.0f} points mod {line['modulus']};"
        f" about {math.ceil(left / 60)} min left"
    )


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
