"""The checks find what is wrong, and the example of the documentation passes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, ClassVar

import pytest
import torch
from torch import Tensor, nn

from kvphase.lab.compressors import Compressor, CompressorConfig, KVShape
from kvphase.lab.experiment import read_experiment
from kvphase.lab.train import Trainer
from kvphase.lab.verify import verify
from lab.family import SMALL, designs, name

if TYPE_CHECKING:
    from kvphase.lab.model_config import ModelConfig

PAGE = Path(__file__).parents[2] / "docs" / "lab.md"


@dataclass(frozen=True, slots=True)
class Wrong(CompressorConfig):
    """A design with one fault."""

    name: ClassVar[str] = "wrong"
    fault: str = ""

    def build(self, shape: KVShape) -> Compressor:
        """Build it."""
        return Mean(self.fault, shape)


class Mean(Compressor):
    """The mean of four tokens, or something near it."""

    def __init__(self, fault: str, shape: KVShape) -> None:
        super().__init__(shape, window=4, stride=4)
        self.fault = fault
        self.map = nn.Linear(shape.width, shape.size)
        if fault == "idle":
            self.spare = nn.Linear(shape.width, shape.size)

    def forward(self, x: Tensor) -> Tensor:
        """Pool."""
        count = x.shape[1] // 4
        if self.fault == "ahead":  # the window of an entry begins where it should end
            x = torch.cat((x[:, 4:], x[:, -4:]), 1)
        pooled = torch.unflatten(x[:, : count * 4], 1, (count, 4)).mean(2)
        if self.fault == "long":  # and the entry before it, which `window` does not say
            pooled = pooled + torch.cat((pooled[:, :1], pooled[:, :-1]), 1)
        entries: Tensor = self.map(pooled)
        if self.fault == "odd":
            return entries[..., 1:]
        return entries * 0 if self.fault == "blank" else entries

    def ends(self, entries: Tensor) -> Tensor:
        """One token too early, if that is the fault."""
        return super().ends(entries) - (1 if self.fault == "early" else 0)


@pytest.mark.parametrize("config", designs(), ids=name)
def test_the_designs_that_ship_pass(config: ModelConfig) -> None:
    assert verify(config) == []


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("", "^$"),
        ("odd", r"^shapes: forward returns \[2, 8, 15\] for 32 tokens, not \[2, 8, 16\]"),
        ("ahead", "causality: changing token"),
        ("early", "causality: changing token"),
        ("long", "^cache: decoding token by token differs .*window"),
        ("blank", "memory: token 0 never reaches the last output"),
        ("idle", r"^gradients: blocks.0.attention.compressor.spare.weight has none"),
    ],
)
def test_what_is_wrong_is_found(fault: str, found: str) -> None:
    problems = verify(replace(SMALL, compressor=Wrong(fault), layers=1))
    assert re.search(found, " ".join(problems)), problems


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    blocks = re.findall(r"^   ```(python|yaml)\n(.*?)^   ```", PAGE.read_text("utf-8"), re.M | re.S)
    assert [kind for kind, _ in blocks] == ["python", "yaml"]
    for (_, text), file in zip(blocks, ("blend.py", "blend.yaml"), strict=True):
        (tmp_path / file).write_text(dedent(text))
    assert dedent(blocks[0][1]).count("\n") < 60
    experiment = read_experiment(str(tmp_path / "blend.yaml"))
    assert verify(experiment.model) == []
    trainer = Trainer(experiment.model, experiment.train, tmp_path / "run")
    assert trainer.step()["loss"] > 0
    assert trainer.modulus == 4
