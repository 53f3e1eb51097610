"""Write a trained model as one ``.npz`` file that numpy alone can read and run.

The file holds the weights as fp16 under their torch names and two JSON strings: ``config`` (the
model's settings) and ``training`` (those of its training). Nothing in it is pickled, so
``numpy.load(..., allow_pickle=False)`` reads it.

As a command it also measures the model and writes a record beside it:
``python -m kvphase.lab.export runs/toy-w8s8/checkpoint.safetensors w8s8.npz --records 24``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kvphase.errors import UsageError
from kvphase.lab.checkpoint import load_checkpoint
from kvphase.lab.compressors import ChunkedConfig, NoneConfig
from kvphase.lab.evaluate import evaluate, summarise
from kvphase.lab.transformer import Decoder, ModelConfig
from kvphase.runtimes.toy_model import ToyModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvphase.lab.data import Design

__all__ = ["export", "load_exported", "main", "record"]

DESIGNS: tuple[Design, ...] = ("insequence", "prefix")
OPTIONS = ("tail", "qk_norm", "post_norm", "sink", "query_rank")


def export(model: Decoder, path: Path, training: Mapping[str, Any] | None = None) -> None:
    """Write ``model`` to ``path``.

    Args:
        model: The trained model; its weights are rounded to fp16 in the file only.
        path: File to write, by convention ``NAME.npz``.
        training: JSON-ready settings of the training, kept for the record.

    Raises:
        UsageError: If numpy's side cannot run such a model.
        ValueError: If a weight is not finite in fp16.
    """
    _check_runs_in_numpy(model.config)
    arrays: dict[str, Any] = {}
    for name, weight in model.state_dict().items():
        half = weight.detach().to(torch.float16).numpy()
        if not np.isfinite(half).all():
            raise ValueError(f"the weight {name} is not finite in fp16")
        arrays[name] = half
    arrays["config"] = np.array(json.dumps(model.config.to_dict()))
    arrays["training"] = np.array(json.dumps(dict(training or {})))
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _check_runs_in_numpy(config: ModelConfig) -> None:
    """Refuse what ``kvphase.runtimes.toy_model`` does not implement.

    Raises:
        UsageError: naming the fields.
    """
    compressor = config.compressor
    plain = ModelConfig(vocab_size=1)
    fields = [name for name in OPTIONS if getattr(config, name) != getattr(plain, name)]
    if config.conv == 0:
        fields.append("conv")
    if not isinstance(compressor, NoneConfig | ChunkedConfig):
        fields.append("compressor.name")
    elif isinstance(compressor, ChunkedConfig) and not (compressor.value_norm or config.tied_kv):
        fields.append("compressor.value_norm")
    if fields:
        raise UsageError(f"only torch runs models with these settings: {', '.join(fields)}")


def load_exported(path: Path) -> Decoder:
    """Read an exported model back into torch, with exactly the fp16 weights of the file."""
    with np.load(path, allow_pickle=False) as file:
        model = ModelConfig.from_dict(json.loads(str(file["config"]))).build(0)
        names = model.state_dict().keys()
        model.load_state_dict({name: torch.from_numpy(file[name]).float() for name in names})
    return model


def record(path: Path, records: int, contexts: int, seed: int) -> dict[str, Any]:
    """Return what ships beside a model: its settings, its training and its accuracy.

    Args:
        path: An exported model.
        records: Records per context.
        contexts: Fresh contexts per design; each asks all records not demonstrated.
        seed: Seed of the contexts.
    """
    model = ToyModel.load(path)
    with np.load(path, allow_pickle=False) as file:
        training = json.loads(str(file["training"]))
    results = {
        design: {
            "contexts": contexts,
            "seed": seed,
            **summarise(evaluate(model, records, design, contexts, seed)),
        }
        for design in DESIGNS
    }
    return {
        "model": path.stem,
        "records": records,
        "results": results,
        "training": training,
        "config": model.config,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvphase.lab.export", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path, help="the .npz to write; the record goes beside it")
    parser.add_argument("--records", type=int, required=True, help="records per context")
    parser.add_argument("--contexts", type=int, default=300, help="contexts per design")
    parser.add_argument("--seed", type=int, default=1_000_000, help="seed of the contexts")
    parser.add_argument("--preset", help="what `kvphase lab train` was given, for the record")
    args = parser.parse_args(argv)
    model, training = load_checkpoint(args.checkpoint)
    if args.preset is not None:
        training = {"command": f"kvphase lab train {args.preset}", **training}
    export(model, args.out, training)
    found = record(args.out, args.records, args.contexts, args.seed)
    args.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
