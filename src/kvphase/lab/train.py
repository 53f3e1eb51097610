"""Train a small model on lookups, with a curriculum over the number of records.

A command as well: ``python -m kvphase.lab.train --design w8s4 --out runs/w8s4``. It writes
``checkpoint.pt`` (weights, optimiser, state) and ``log.jsonl`` to the folder and goes on from
them when started again. The data of a step depend on the seed and the step alone, so a run that
was killed ends with the same weights as one that was not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kvphase.lab.compressors import ChunkedConfig, NoneConfig
from kvphase.lab.data import Batch, Lookups, load_vocabulary
from kvphase.lab.transformer import Decoder, ModelConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DESIGNS", "Progress", "TrainConfig", "Trainer", "load_checkpoint", "main"]

DESIGNS: dict[str, ChunkedConfig | NoneConfig] = {
    "w8s4": ChunkedConfig(window=8, stride=4, gates="vector", maps="part"),
    "full": NoneConfig(),
}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Budget, optimiser and curriculum; the same for all models of a comparison."""

    steps: int = 8_000
    tokens: int = 2000
    """Tokens in a batch, roughly: short contexts come in larger batches."""
    questions: int = 24
    """Most questions at the end of a training sequence; a context of few records has four more
    than records. The loss is on their answers."""
    lr: float = 3e-3
    warmup: int = 200
    decay: float = 0.3
    """Fraction of the steps, at the end, over which the learning rate falls to zero."""
    weight_decay: float = 0.01
    levels: tuple[int, ...] = (4, 8, 12, 16)
    """Records per context, from the first level to the last."""
    pass_mark: float = 0.7
    """Mean accuracy over ``patience`` batches of a level that opens the next one."""
    patience: int = 40
    current_share: float = 0.6
    """Fraction of batches at the current level; the others draw from all levels up to it."""
    seed: int = 0


@dataclass(slots=True)
class Progress:
    """What a resumed run needs to know besides the weights."""

    step: int = 0
    level: int = 0
    recent: list[float] = field(default_factory=list)
    """Accuracies of the latest batches at the current level."""

    def record(self, accuracy: float, config: TrainConfig) -> None:
        """Take in a batch at the current level; move up where the pass mark is reached."""
        self.recent = [*self.recent, accuracy][-config.patience :]
        full = len(self.recent) == config.patience
        last = self.level == len(config.levels) - 1
        if full and not last and float(np.mean(self.recent)) >= config.pass_mark:
            self.level += 1
            self.recent = []


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, constant, then linear decay to zero."""
    left = (config.steps - step) / max(1.0, config.decay * config.steps)
    return config.lr * min(1.0, (step + 1) / config.warmup, left)


class Trainer:
    """Owns the model, the optimiser and the progress of one run in one folder."""

    def __init__(self, model: ModelConfig, config: TrainConfig, folder: Path) -> None:
        """Start afresh, or go on from ``folder/checkpoint.pt`` where there is one.

        Raises:
            ValueError: If the folder holds a run with other settings.
        """
        self.config, self.folder = config, folder
        self.data = Lookups(load_vocabulary())
        self.model = model.build(config.seed)
        decaying = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [
            {"params": decaying, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.98), fused=True)
        self.progress = Progress()
        folder.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._resume()

    @property
    def _path(self) -> Path:
        return self.folder / "checkpoint.pt"

    def step(self) -> dict[str, Any]:
        """Train on one batch; return its records, loss, accuracy and hits by residue mod 8."""
        config, progress = self.config, self.progress
        rng = np.random.default_rng([config.seed, progress.step])
        level = progress.level
        if rng.random() >= config.current_share:
            level = int(rng.integers(progress.level + 1))
        records = config.levels[level]
        questions = min(records + 4, config.questions)
        batch = self.data.batch(rng, records, config.tokens, questions)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(progress.step, config)
        loss, correct = lookup_loss(self.model, batch)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        accuracy = float(correct.mean())
        if level == progress.level:
            progress.record(accuracy, config)
        progress.step += 1
        residues = batch.targets.ravel() % 8
        return {
            "records": records,
            "loss": float(loss.detach()),
            "accuracy": accuracy,
            "hits": np.bincount(residues, correct.ravel(), minlength=8),
            "asked": np.bincount(residues, minlength=8),
        }

    def run(self, every: int = 200, until: int | None = None) -> None:
        """Train to the end (or to step ``until``); log and save every ``every`` steps."""
        end = self.config.steps if until is None else min(until, self.config.steps)
        started, window = time.monotonic(), []
        while self.progress.step < end:
            window.append(self.step())
            if self.progress.step % every == 0 or self.progress.step == end:
                self._log(window, time.monotonic() - started)
                self.save()
                window = []

    def save(self) -> None:
        """Write the checkpoint in one move, so that a kill never leaves half a file."""
        state = {
            "model_config": json.dumps(self.model.config.to_dict()),
            "train_config": json.dumps(asdict(self.config)),
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "progress": asdict(self.progress),
        }
        temporary = self._path.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self._path)

    def _resume(self) -> None:
        state = torch.load(self._path, weights_only=True)
        settings = {
            "model_config": self.model.config.to_dict(),
            "train_config": asdict(self.config),
        }
        for name, mine in settings.items():
            if json.loads(state[name]) != json.loads(json.dumps(mine)):
                raise ValueError(f"{self._path} holds a run with another {name}")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.progress = Progress(**state["progress"])

    def _log(self, window: list[dict[str, Any]], seconds: float) -> None:
        """Append one line: means over the steps since the last, at the largest size asked."""
        records = max(entry["records"] for entry in window)
        at_top = [entry for entry in window if entry["records"] == records]
        hits = sum(entry["hits"] for entry in at_top)
        asked = sum(entry["asked"] for entry in at_top)
        line = {
            "step": self.progress.step,
            "records": records,
            "loss": round(float(np.mean([entry["loss"] for entry in at_top])), 4),
            "accuracy": round(float(np.mean([entry["accuracy"] for entry in at_top])), 4),
            "by_residue_mod_8": np.round(hits / np.maximum(asked, 1), 3).tolist(),
            "seconds": round(seconds, 1),
        }
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def lookup_loss(model: Decoder, batch: Batch) -> tuple[Tensor, np.ndarray[Any, np.dtype[Any]]]:
    """Return the mean cross-entropy of the answers and which were right (0 or 1, ``[B, Q]``)."""
    columns, answers = torch.from_numpy(batch.columns), torch.from_numpy(batch.answers)
    logits = model.unembed(model.hidden(torch.from_numpy(batch.ids), columns))  # [B, Q, vocab]
    loss = functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
    return loss, (logits.argmax(-1) == answers).double().numpy()


def load_checkpoint(path: Path) -> tuple[Decoder, dict[str, Any]]:
    """Read a checkpoint: the model, and its training settings with the step under ``step``."""
    state = torch.load(path, weights_only=True)
    model = ModelConfig.from_dict(json.loads(state["model_config"])).build(0)
    model.load_state_dict(state["model"])
    return model, {**json.loads(state["train_config"]), "step": state["progress"]["step"]}


def _parser() -> argparse.ArgumentParser:
    budget, model = TrainConfig(), ModelConfig(vocab_size=1)
    parser = argparse.ArgumentParser(prog="python -m kvphase.lab.train", description=__doc__)
    parser.add_argument("--design", choices=sorted(DESIGNS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--seed", type=int, default=budget.seed)
    parser.add_argument("--steps", type=int, default=budget.steps)
    parser.add_argument("--tokens", type=int, default=budget.tokens)
    parser.add_argument("--lr", type=float, default=budget.lr)
    parser.add_argument("--levels", type=int, nargs="+", default=list(budget.levels))
    parser.add_argument("--width", type=int, default=model.width)
    parser.add_argument("--head-dim", type=int, default=model.head_dim)
    parser.add_argument("--rope-dims", type=int, default=model.rope_dims)
    parser.add_argument("--every", type=int, default=200, help="steps between checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    args = _parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    data = load_vocabulary()
    model = ModelConfig(
        vocab_size=len(data.tokens),
        width=args.width,
        head_dim=args.head_dim,
        rope_dims=args.rope_dims,
        compressor=DESIGNS[args.design],
    )
    config = replace(
        TrainConfig(seed=args.seed, steps=args.steps, tokens=args.tokens, lr=args.lr),
        levels=tuple(args.levels),
    )
    Trainer(model, config, args.out).run(args.every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
