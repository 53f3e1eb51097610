"""Train a model on lookups, with a curriculum over the number of records, or on text.

``kvphase lab train CONFIG`` is the command. A run writes ``checkpoint.safetensors`` (weights,
optimiser, state) and ``log.jsonl`` to its folder and goes on from them when started again. The
data of a step depend on the seed, the step and the levels open, so a run that was killed ends with
the same weights as one that was not (given the same number of threads).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kvphase.errors import UsageError
from kvphase.lab.checkpoint import (
    NAME,
    load_weights,
    read_checkpoint,
    under,
    write_checkpoint,
)
from kvphase.lab.data import Batch, Lookups
from kvphase.lab.experiment import DataConfig, Experiment, TrainConfig, read_experiment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvphase.lab.model_config import ModelConfig
    from kvphase.lab.text import Texts
    from kvphase.lab.transformer import Decoder

__all__ = ["Curriculum", "Trainer", "answer_loss", "learning_rate", "main", "modulus_of"]

RECENT = 10  # batches at the highest open level that its accuracy is taken over
HELD_OUT = 12  # batches of the validation loss
VALIDATION = 2**31  # generator stream of the validation batches, never a training step
COMMON = 48  # a common multiple of the strides beyond this is no axis to read


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then constant, so that a shorter run is the beginning of a longer one."""
    return config.lr * min(1.0, (step + 1) / config.warmup)


def modulus_of(model: Decoder) -> int:
    """Return the modulus that shows every grid of ``model``: 8 where there is none."""
    common = math.lcm(*model.strides)
    if common == 1:
        return 8
    return common if common <= COMMON else model.strides[-1]


class Curriculum:
    """Which numbers of records are open: by steps, or by the accuracy reached."""

    def __init__(self, config: TrainConfig) -> None:
        """Start at the lowest level."""
        self.config = config
        self.opened: int = 1
        self.recent: deque[float] = deque(maxlen=RECENT)

    def at(self, step: int) -> int:
        """Return how many levels are open at ``step``."""
        config = self.config
        if not config.up_at:
            self.opened = min(len(config.levels), 1 + step // config.climb)
        return self.opened

    def note(self, records: int, accuracy: float) -> None:
        """Take in the accuracy of a batch; open the next level where the highest is learnt."""
        if records != self.config.levels[self.opened - 1]:
            return
        self.recent.append(accuracy)
        learnt = len(self.recent) == RECENT and sum(self.recent) >= RECENT * self.config.up_at
        if self.config.up_at and learnt and self.opened < len(self.config.levels):
            self.opened += 1
            self.recent.clear()


class Trainer:
    """Owns the model, the optimiser and the progress of one run in one folder."""

    def __init__(
        self,
        model: ModelConfig,
        config: TrainConfig,
        folder: Path,
        data: DataConfig | None = None,
        device: str = "cpu",
    ) -> None:
        """Start afresh, or go on from ``folder/checkpoint.safetensors`` where there is one.

        Raises:
            UsageError: The folder holds a run with other settings or a damaged checkpoint, or the
                data cannot be read.
        """
        self.config: TrainConfig = config
        self.folder: Path = folder
        self.data_config: DataConfig = data or DataConfig()
        self.data: Lookups | Texts = self.data_config.open()
        self.model: Decoder = model.build(config.seed, device)
        self.modulus: int = modulus_of(self.model)
        self.curriculum: Curriculum = Curriculum(config)
        decaying = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [
            {"params": decaying, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimiser: torch.optim.AdamW = torch.optim.AdamW(
            groups, lr=config.lr, betas=(0.9, 0.98), fused=True
        )
        self.done: int = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the folder {folder} cannot be made: {error.strerror}") from error
        if self._path.exists():
            self._resume()
        self._forget_lost_steps()

    @property
    def _path(self) -> Path:
        return self.folder / NAME

    def step(self) -> dict[str, Any]:
        """Train on one batch; return its records, loss, accuracy and hits by residue.

        Raises:
            UsageError: The loss or a gradient is not finite; nothing was changed.
        """
        batch, records = self._draw(np.random.default_rng([self.config.seed, self.done]))
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.done, self.config)
        loss, correct = answer_loss(self.model, batch)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        size = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if not math.isfinite(float(loss.detach()) + float(size)):
            raise UsageError(
                f"the loss is no longer finite at step {self.done + 1}: lower train.lr"
                f" ({self.config.lr}) or raise train.warmup; the last checkpoint is intact"
            )
        self.optimiser.step()
        self.done += 1
        self.curriculum.note(records, float(correct.mean()))
        residues = batch.targets.ravel() % self.modulus
        return {
            "records": records,
            "loss": float(loss.detach()),
            "accuracy": float(correct.mean()),
            "hits": np.bincount(residues, correct.ravel(), minlength=self.modulus),
            "asked": np.bincount(residues, minlength=self.modulus),
        }

    def _draw(self, rng: np.random.Generator) -> tuple[Batch, int]:
        """A batch and its records per context, by which log and curriculum go.

        0 for text, and for dense records that are mixed in among others.
        """
        config = self.config
        if not isinstance(self.data, Lookups):
            return self.data.batch(rng, config.tokens), 0
        opened = self.curriculum.at(self.done)
        records = config.levels[int(rng.integers(opened))]
        dense = bool(rng.random() < config.dense_share)
        batch = self.data.batch(rng, records, config.tokens, config.questions, dense=dense)
        return batch, 0 if dense and config.dense_share < 1 else records

    def run(
        self,
        every: int = 200,
        until: int | None = None,
        watch: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Train to the end (or to step ``until``); log and save every ``every`` steps.

        Args:
            every: Steps between two checkpoints.
            until: Stop here, though the budget goes on.
            watch: Is told every line of the log.
        """
        end = self.config.steps if until is None else min(until, self.config.steps)
        started, window = time.monotonic(), []
        while self.done < end:
            window.append(self.step())
            if self.done % every == 0 or self.done == end:
                line = self._log(window, time.monotonic() - started)
                self.save()
                window = []
                if watch is not None:
                    watch(line)

    @torch.no_grad()
    def validate(self) -> float:
        """Return the mean loss on held-out batches, the same ones for every model and rate.

        They take the levels of the curriculum in turn, open or not, so that a rate that opened
        more of them is not the worse for it.
        """
        losses = []
        for number in range(HELD_OUT):
            rng = np.random.default_rng([VALIDATION, number])
            if isinstance(self.data, Lookups):
                records = self.config.levels[number % len(self.config.levels)]
                batch = self.data.batch(rng, records, self.config.tokens, self.config.questions)
            else:
                batch = self.data.batch(rng, self.config.tokens)
            losses.append(float(answer_loss(self.model, batch)[0]))
        return sum(losses) / len(losses)

    def save(self) -> None:
        """Write the checkpoint in one move, so that a kill never leaves half a file.

        Raises:
            UsageError: It cannot be written; the one before is intact.
        """
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": value for name, value in moments.items()}
        curriculum = {"opened": self.curriculum.opened, "recent": list(self.curriculum.recent)}
        settings = {
            "model_config": self.model.config.to_dict(),
            "train_config": asdict(self.config),
            "data_config": asdict(self.data_config),
            "curriculum": curriculum,
            "step": self.done,
        }
        write_checkpoint(self._path, tensors, settings)

    def _resume(self) -> None:
        settings, tensors = read_checkpoint(self._path)
        mine = {
            "model_config": self.model.config.to_dict(),
            "train_config": asdict(self.config),
            "data_config": asdict(self.data_config),
        }
        for name, setting in mine.items():
            plain = json.loads(json.dumps(setting))
            # more steps are the same run, gone on; what an older file lacks had its default
            theirs = {**plain, **settings[name], "steps": plain.get("steps")}
            if theirs != {**plain, "steps": plain.get("steps")}:
                fields = sorted(key for key, value in plain.items() if theirs.get(key) != value)
                raise UsageError(
                    f"{self._path} holds a run with another {name} ({', '.join(fields)}):"
                    " choose another folder"
                )
        load_weights(self.model, under("model", tensors), self._path)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in under("optimiser", tensors).items():
            number, _, moment = name.partition(".")
            moments.setdefault(int(number), {})[moment] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.done = settings["step"]
        state = settings.get("curriculum", {"opened": 1, "recent": []})
        self.curriculum.opened = state["opened"]
        self.curriculum.recent.extend(state["recent"])

    def _forget_lost_steps(self) -> None:
        """Drop lines of the log beyond the checkpoint: those steps are trained again."""
        log = self.folder / "log.jsonl"
        if log.exists():
            lines = log.read_text("utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and _step_of(line) <= self.done]
            log.write_text("".join(kept), "utf-8")

    def _log(self, window: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """Append one line: means over the steps since the last, at the largest size asked."""
        records = max(entry["records"] for entry in window)
        at_top = [entry for entry in window if entry["records"] == records]
        hits = sum(entry["hits"] for entry in at_top)
        asked = sum(entry["asked"] for entry in at_top)
        accuracy = (hits / np.maximum(asked, 1))[asked > 0]
        line = {
            "step": self.done,
            "records": records,
            "loss": round(float(np.mean([entry["loss"] for entry in at_top])), 4),
            "accuracy": round(float(np.mean([entry["accuracy"] for entry in at_top])), 4),
            "gap_pp": round(100 * float(accuracy.max() - accuracy.min()), 1),
            "modulus": self.modulus,
            "by_residue": np.round(hits / np.maximum(asked, 1), 3).tolist(),
            "seconds": round(seconds, 1),
        }
        try:
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UsageError(
                f"the log in {self.folder} could not be written ({error.strerror});"
                " the last checkpoint is intact"
            ) from error
        return line


def _step_of(line: str) -> int:
    step: int = json.loads(line)["step"]
    return step


def answer_loss(model: Decoder, batch: Batch) -> tuple[Tensor, np.ndarray[Any, np.dtype[Any]]]:
    """Return the mean cross-entropy of the answers and which were right (0 or 1, ``[B, Q]``)."""
    device = model.embedding.weight.device
    ids, columns = (torch.from_numpy(part).to(device) for part in (batch.ids, batch.columns))
    answers = torch.from_numpy(batch.answers).to(device)
    logits = model.unembed(model.hidden(ids, columns))  # [B, Q, vocab]
    loss = functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
    return loss, (logits.argmax(-1) == answers).double().cpu().numpy()


def main(argv: Sequence[str] | None = None) -> int:
    """Train a shipped toy model again, as its record beside it says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvphase.lab.train", description=main.__doc__)
    parser.add_argument("--design", choices=("w8s4", "full"), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    experiment: Experiment = read_experiment(f"toy-{args.design}")
    Trainer(experiment.model, experiment.train, args.out).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
