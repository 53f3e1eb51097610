"""The family that the published claims are tested on: its members, and their trained weights.

Every member is the preset ``family`` with a few settings changed, so all of them see the very same
batches. The weights that ship with the package are rounded to fp16, one file a member, in the
folder ``family`` beside this file.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kvphase.errors import UsageError
from kvphase.lab.checkpoint import load_checkpoint, read_checkpoint, under, write_checkpoint
from kvphase.lab.experiment import Experiment, read_experiment
from kvphase.lab.train import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kvphase.lab.transformer import Decoder

__all__ = ["MEMBERS", "experiment", "load_member", "shipped", "train_member"]

FULL = "model.compressor={name: none}"
KV4 = "model.kv_heads=4"


def _chunked(window: int, stride: int, gates: str = "scalar") -> str:
    """The base design, a map for every slot, with other sizes or gates."""
    fixed = f"name: chunked, gates: {gates}, maps: slot"
    return f"model.compressor={{{fixed}, window: {window}, stride: {stride}}}"


MEMBERS: dict[str, tuple[str, ...]] = {
    "w4s4": (),
    "w4s4-seed1": ("train.seed=1",),
    "w4s4-seed2": ("train.seed=2",),
    "w6s6": (_chunked(6, 6),),
    "w8s8": (_chunked(8, 8),),
    "w12s12": (_chunked(12, 12),),
    "w8s4": (_chunked(8, 4),),
    "w8s6": (_chunked(8, 6),),
    "w4s4-norope": ("model.rope_dims=0",),
    "w4s4-uniform": (_chunked(4, 4, "uniform"),),
    "w4s4-kv4": (KV4,),
    "w8s8-kv4": (_chunked(8, 8), KV4),
    "full": (FULL,),
    "full-kv4": (FULL, KV4),
    "full-norope": (FULL, "model.rope_dims=0"),
    "mla": ("model.compressor={name: mla, latent: 32}",),
    "dsv4": ("model.compressor={name: dsv4, hca: 32, pattern: [hca, csa]}", "model.tied_kv=true"),
    "dsv41": ("model.compressor={name: dsv41}", "model.tied_kv=true"),
}
"""Every member by what it changes in the preset ``family`` (W4/S4, 1 KV head)."""


def experiment(name: str) -> Experiment:
    """Return how the member ``name`` is trained.

    Raises:
        UsageError: There is no such member.
    """
    if name not in MEMBERS:
        raise UsageError(f"{name} is no member of the family ({', '.join(MEMBERS)})")
    return read_experiment("family", [f"name={name}", *MEMBERS[name]])


def shipped() -> Path:
    """Return the folder of the weights that ship with the package."""
    return Path(str(resources.files("kvphase.lab") / "family"))


def load_member(name: str, folder: Path) -> Decoder:
    """Read ``folder/NAME.safetensors``.

    Raises:
        UsageError: It is missing or damaged, or holds another design than the member's.
    """
    file = folder / f"{name}.safetensors"
    model, _ = load_checkpoint(file)
    if model.config != experiment(name).model:
        raise UsageError(f"{file.name} holds another model than the member {name}")
    return model


def train_member(name: str, folder: Path, tell: Callable[[str], None]) -> None:
    """Train ``name`` in ``folder/NAME``, going on where it was, and write its rounded weights.

    Args:
        name: The member.
        folder: Of the family; the weights are written to ``folder/NAME.safetensors``.
        tell: Is told about progress, a line at a time.
    """
    torch.set_num_threads(1)
    wanted = experiment(name)
    trainer = Trainer(wanted.model, wanted.train, folder / name, wanted.data)

    def watch(line: dict[str, Any]) -> None:
        tell(f"{name}: step {line['step']}/{wanted.train.steps}, accuracy {line['accuracy']:.0%}")

    trainer.run(every=200, watch=watch)
    settings, tensors = read_checkpoint(folder / name / "checkpoint.safetensors")
    weights = {f"model.{key}": value.half() for key, value in under("model", tensors).items()}
    write_checkpoint(folder / f"{name}.safetensors", weights, settings)
