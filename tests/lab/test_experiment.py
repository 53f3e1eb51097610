from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kvphase.errors import UsageError
from kvphase.lab.compressors import ChunkedConfig, import_designs
from kvphase.lab.experiment import presets, read_experiment

if TYPE_CHECKING:
    from pathlib import Path

MINE = """
from dataclasses import dataclass
from typing import ClassVar
from torch import Tensor, nn
from kvphase.lab.compressors import Compressor, CompressorConfig, KVShape, design

@design
@dataclass(frozen=True)
class FirstConfig(CompressorConfig):
    name: ClassVar[str] = "first-of-{number}"
    stride: int = 3
    def build(self, shape: KVShape) -> Compressor:
        return First(self, shape)

class First(Compressor):
    def __init__(self, config: FirstConfig, shape: KVShape) -> None:
        super().__init__(shape, window=config.stride, stride=config.stride)
        self.map = nn.Linear(shape.width, shape.size * (1 if shape.tied else 2))
    def forward(self, x: Tensor) -> Tensor:
        return self.map(x[:, : x.shape[1] // self.stride * self.stride : self.stride])
"""


@pytest.mark.parametrize("name", presets())
def test_presets_are_whole(name: str) -> None:
    experiment = read_experiment(name)
    assert experiment.name == name
    assert experiment.model.build(0, "meta").config == experiment.model


def test_settings_come_from_yaml_json_and_the_command(tmp_path: Path) -> None:
    text = '{"model": {"width": 32, "compressor": {"name": "chunked", "stride": 2}}}'
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.yaml").write_text(f"name: mine\nmodel: {text[10:-1]}\ntrain: {{lr: 1e-3}}\n")
    one = read_experiment(str(tmp_path / "a.json"), ["train.lr=1e-3", "name=mine"])
    assert one == read_experiment(str(tmp_path / "b.yaml"))
    assert one.train.lr == 1e-3
    assert one.model.compressor == ChunkedConfig(8, 2)
    assert one.model.vocab_size == 231
    text_one = read_experiment("laptop", ["data={kind: text}", "model.compressor.window=8"])
    assert text_one.model.vocab_size == 256
    assert text_one.model.compressor == ChunkedConfig(8, 4, "scalar", "slot")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["train.stps=1"], "train.stps is not a setting; did you mean steps"),
        (["train.steps=0"], "train.steps must be at least 1"),
        (["train.steps=many"], "train.steps: "),
        (["train.lr=-1"], "train.lr must be a positive number"),
        (["train.levels=[0]"], "train.levels"),
        (["train.levels=[200]"], "train.levels: at most 96"),
        (["train.up_at=7"], "train.up_at must lie between"),
        (["modle.width=8"], "modle is not a part"),
        (["model.width=0"], "width must be at least 1"),
        (["model.heads=3", "model.kv_heads=2"], "kv_heads: 3 query heads"),
        (["model.rope_dims=64"], "rope_dims .* at most head_dim"),
        (["model.compressor={name: mine}"], "compressor.name: no .* 'mine'; known: .* --import"),
        (["model.compressor.stride=9"], "compressor.stride must lie between"),
        (["model.compressor.window=512"], "train.levels and train.questions: .* window of 512"),
        (["data={kind: text, length: 3}"], "data.length: .* window of 4"),
        (["data.kind=audio"], "data.kind: "),
        (["data.prefix_share=2"], "data.prefix_share must lie between"),
        (["train"], "--set train: write it as"),
        (["train.lr.deep=3"], "lr holds no settings"),
        (["train.steps=[1"], "is not YAML"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_experiment("laptop", changes)


def test_files_that_are_no_experiment_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nor a preset \(family, laptop, paper"):
        read_experiment("desktop")
    with pytest.raises(UsageError, match="cannot be read"):
        read_experiment(str(tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(UsageError, match="must hold settings by name"):
        read_experiment(str(tmp_path / "list.yaml"))


def test_yaml_without_its_reader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageError, match="YAML needs pyyaml"):
        read_experiment("laptop")


def test_text_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short")
    for files, message in (
        ("[]", "data.files names no text file"),
        (f"[{tmp_path}/none.txt]", "data.files: .*none.txt: No such file"),
        (f"[{tmp_path}/short.txt]", "data.files hold 9 tokens, too few"),
    ):
        experiment = read_experiment("laptop", [f"data={{kind: text, files: {files}}}"])
        with pytest.raises(UsageError, match=message):
            experiment.data.open()


def test_a_design_of_ones_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"first{number}.py").write_text(MINE.replace("{number}", str(number)))
    config = tmp_path / "a.yaml"
    config.write_text("imports: [first0.py]\nmodel: {compressor: {name: first-of-0}}\n")
    assert read_experiment(str(config)).model.compressor.name == "first-of-0"
    given = read_experiment(
        "laptop", ["model.compressor={name: first-of-1}"], [tmp_path / "first1.py"]
    )
    assert given.model.compressor.name == "first-of-1"
    monkeypatch.setenv("KVPHASE_DESIGNS", str(tmp_path / "first2.py"))
    listed = read_experiment("laptop", ["model.compressor={name: first-of-2, stride: 5}"])
    assert listed.model.build(0).strides == (5,)


def test_files_that_hold_no_design_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a Python file"):
        import_designs([tmp_path / "none.py"])
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    with pytest.raises(UsageError, match="cannot be imported: ModuleNotFoundError"):
        import_designs([tmp_path / "broken.py"])
    (tmp_path / "twice.py").write_text(MINE.replace("first-of-{number}", "chunked"))
    with pytest.raises(UsageError, match="two compressor designs are called 'chunked'"):
        import_designs([tmp_path / "twice.py"])
