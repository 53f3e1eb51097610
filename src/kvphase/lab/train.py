"""Train a small model on lookups, with a curriculum over the number of records.

A command as well: ``python -m kvphase.lab.train --design w8s4 --out runs/w8s4``. It writes
``checkpoint.safetensors`` (weights, optimiser, state) and ``log.jsonl`` to the folder and goes on
from them when started again. The data of a step depend on the seed and the step alone, so a run
that was killed ends with the same weights as one that was not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from kvphase.lab.compressors import ChunkedConfig, NoneConfig
from kvphase.lab.data import Batch, Lookups, load_vocabulary
from kvphase.lab.transformer import Decoder, ModelConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DESIGNS", "TrainConfig", "Trainer", "load_checkpoint", "main"]

DESIGNS: dict[str, ChunkedConfig | NoneConfig] = {
    "w8s4": ChunkedConfig(window=8, stride=4, gates="vector", maps="part"),
    "full": NoneConfig(),
}

# What the command line can change; the rest stands in the two configurations.
BUDGET = ("seed", "steps", "tokens", "lr", "climb", "dense_share")
SIZES = ("width", "heads", "head_dim", "rope_dims", "mlp_width")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Budget, optimiser and curriculum; the same for all models of a comparison."""

    steps: int = 1_000
    tokens: int = 2048
    """Tokens in a batch, roughly: short contexts come in larger batches."""
    questions: int = 16
    """Questions at the end of a training sequence; the loss is on their answers."""
    lr: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.01
    levels: tuple[int, ...] = (4, 8, 16, 24)
    """Records per context; a batch draws from the levels that are open."""
    climb: int = 100
    """Steps from the opening of one level to that of the next."""
    dense_share: float = 0.6
    """Fraction of batches with dense records of two tokens. A language model must keep every
    token; in dense records no token can be left out either. Lookups alone, with one value in four
    tokens or more, teach a compressor to keep the value and drop the rest at any phase."""
    seed: int = 0


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then constant, so that a shorter run is the beginning of a longer one."""
    return config.lr * min(1.0, (step + 1) / config.warmup)


class Trainer:
    """Owns the model, the optimiser and the progress of one run in one folder."""

    def __init__(self, model: ModelConfig, config: TrainConfig, folder: Path) -> None:
        """Start afresh, or go on from ``folder/checkpoint.safetensors`` where there is one.

        Raises:
            ValueError: If the folder holds a run with other settings.
        """
        self.config: TrainConfig = config
        self.folder: Path = folder
        self.data: Lookups = Lookups(load_vocabulary())
        self.model: Decoder = model.build(config.seed)
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
        folder.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._resume()

    @property
    def _path(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def step(self) -> dict[str, Any]:
        """Train on one batch; return its records, loss, accuracy and hits by residue mod 8."""
        config = self.config
        rng = np.random.default_rng([config.seed, self.done])
        opened = min(len(config.levels), 1 + self.done // config.climb)
        records = config.levels[int(rng.integers(opened))]
        dense = bool(rng.random() < config.dense_share)
        batch = self.data.batch(rng, records, config.tokens, config.questions, dense=dense)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.done, config)
        loss, correct = lookup_loss(self.model, batch)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.done += 1
        residues = batch.targets.ravel() % 8
        return {
            "records": 0 if dense else records,
            "loss": float(loss.detach()),
            "accuracy": float(correct.mean()),
            "hits": np.bincount(residues, correct.ravel(), minlength=8),
            "asked": np.bincount(residues, minlength=8),
        }

    def run(self, every: int = 200, until: int | None = None) -> None:
        """Train to the end (or to step ``until``); log and save every ``every`` steps."""
        end = self.config.steps if until is None else min(until, self.config.steps)
        started, window = time.monotonic(), []
        while self.done < end:
            window.append(self.step())
            if self.done % every == 0 or self.done == end:
                self._log(window, time.monotonic() - started)
                self.save()
                window = []

    def save(self) -> None:
        """Write the checkpoint in one move, so that a kill never leaves half a file."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": value for name, value in moments.items()}
        settings = {
            "model_config": json.dumps(self.model.config.to_dict()),
            "train_config": json.dumps(asdict(self.config)),
            "step": str(self.done),
        }
        temporary = self._path.with_suffix(".tmp")
        save_file(tensors, temporary, metadata=settings)
        temporary.replace(self._path)

    def _resume(self) -> None:
        settings, tensors = _read(self._path)
        mine = {
            "model_config": self.model.config.to_dict(),
            "train_config": asdict(self.config),
        }
        for name, setting in mine.items():
            if json.loads(settings[name]) != json.loads(json.dumps(setting)):
                raise ValueError(f"{self._path} holds a run with another {name}")
        self.model.load_state_dict(_under("model", tensors))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimiser", tensors).items():
            number, _, moment = name.partition(".")
            moments.setdefault(int(number), {})[moment] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.done = int(settings["step"])

    def _log(self, window: list[dict[str, Any]], seconds: float) -> None:
        """Append one line: means over the steps since the last, at the largest size asked."""
        records = max(entry["records"] for entry in window)
        at_top = [entry for entry in window if entry["records"] == records]
        hits = sum(entry["hits"] for entry in at_top)
        asked = sum(entry["asked"] for entry in at_top)
        line = {
            "step": self.done,
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
    settings, tensors = _read(path)
    model = ModelConfig.from_dict(json.loads(settings["model_config"])).build(0)
    model.load_state_dict(_under("model", tensors))
    return model, {**json.loads(settings["train_config"]), "step": int(settings["step"])}


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Settings and tensors of a checkpoint.

    Raises:
        ValueError: If the file is none, or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()  # it is no mapping: it cannot be iterated over
            return dict(file.metadata()), {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, TypeError) as error:
        raise ValueError(f"{path} is not a checkpoint of kvphase, or is damaged") from error


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, without it."""
    start = f"{prefix}."
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def _parser() -> argparse.ArgumentParser:
    budget, model = TrainConfig(), ModelConfig(vocab_size=1)
    parser = argparse.ArgumentParser(prog="python -m kvphase.lab.train", description=__doc__)
    parser.add_argument("--design", choices=sorted(DESIGNS), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--every", type=int, default=200, help="steps between checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    for field in BUDGET:
        value = getattr(budget, field)
        parser.add_argument(_flag(field), type=type(value), default=value)
    for field in SIZES:
        parser.add_argument(_flag(field), type=int, default=getattr(model, field))
    parser.add_argument("--levels", type=int, nargs="+", default=list(budget.levels))
    return parser


def _flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def _picked(args: argparse.Namespace, fields: Sequence[str]) -> dict[str, Any]:
    return {field: getattr(args, field) for field in fields}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    args = _parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    data = load_vocabulary()
    model = ModelConfig(
        vocab_size=len(data.tokens), compressor=DESIGNS[args.design], **_picked(args, SIZES)
    )
    config = TrainConfig(levels=tuple(args.levels), **_picked(args, BUDGET))
    Trainer(model, config, args.out).run(args.every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
