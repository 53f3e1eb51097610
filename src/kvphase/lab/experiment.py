"""What one training is: model, data and budget, read from YAML, JSON or a preset.

::

    model: {layers: 2, width: 64, compressor: {name: chunked, window: 4, stride: 4}}
    data: {kind: lookup}
    train: {steps: 4000, lr: 3e-3}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kvphase.errors import UsageError
from kvphase.lab.compressors import import_designs
from kvphase.lab.data import RECORD, Lookups, load_vocabulary
from kvphase.lab.fields import fill
from kvphase.lab.model_config import ModelConfig
from kvphase.lab.text import Texts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DataConfig", "Experiment", "TrainConfig", "presets", "read_experiment"]


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Budget, optimiser and curriculum; the same for all models of a comparison."""

    steps: int = 1_000
    tokens: int = 2048
    """Tokens in a batch, roughly: short contexts come in larger batches."""
    questions: int = 16
    """Questions at the end of a lookup sequence; the loss is on their answers."""
    lr: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.01
    levels: tuple[int, ...] = (4, 8, 16, 24)
    """Records per context; a batch draws from the levels that are open."""
    climb: int = 100
    """Steps from the opening of one level to that of the next, where ``up_at`` is 0."""
    dense_share: float = 0.6
    """Fraction of batches with dense records of two tokens. A language model must keep every
    token; in dense records no token can be left out either. Lookups alone, with one value in four
    tokens or more, teach a compressor to keep the value and drop the rest at any phase."""
    seed: int = 0
    up_at: float = 0.0
    """Open the next level once the accuracy at the highest open one reaches this; 0: by steps."""

    def __post_init__(self) -> None:
        """Refuse budgets that train nothing."""
        for name in ("steps", "tokens", "questions", "warmup", "climb"):
            if getattr(self, name) < 1:
                raise UsageError(f"train.{name} must be at least 1, is {getattr(self, name)}")
        if not self.levels or min(self.levels) < 1:
            raise UsageError("train.levels must list numbers of records, each at least 1")
        if not 0 < self.lr < float("inf"):
            raise UsageError(f"train.lr must be a positive number, is {self.lr}")
        for name in ("dense_share", "up_at"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"train.{name} must lie between 0 and 1")


@dataclass(frozen=True, slots=True)
class DataConfig:
    """What is learnt: lookups (`kvphase.lab.data`) or text files (`kvphase.lab.text`)."""

    kind: Literal["lookup", "text"] = "lookup"
    prefix_share: float = 0.25
    """Lookup: fraction of sequences in the prefix-padding design; the others have spacers."""
    short_share: float = 0.75
    """Lookup: fraction of batches with start offsets below 16 instead of 128."""
    phase_locked: bool = False
    """Lookup: no offset and no spacers, so that every key stands on the same residue."""
    files: tuple[str, ...] = ()
    """Text: files in UTF-8."""
    length: int = 256
    """Text: tokens of a training sequence."""
    tokenizer: str | None = None
    """Text: a ``tokenizer.json``; bytes without one."""

    def __post_init__(self) -> None:
        """Refuse shares that are none, and sequences without a next token."""
        for name in ("prefix_share", "short_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"data.{name} must lie between 0 and 1")
        if self.length < 2:
            raise UsageError(f"data.length must be at least 2, is {self.length}")

    def open(self) -> Lookups | Texts:
        """Return the source of batches.

        Raises:
            UsageError: A text file or the tokenizer cannot be read.
        """
        if self.kind == "text":
            return Texts(self.files, self.length, self.tokenizer)
        return Lookups(
            load_vocabulary(),
            self.prefix_share,
            self.short_share,
            phase_locked=self.phase_locked,
        )


@dataclass(frozen=True, slots=True)
class Experiment:
    """One training: what `kvphase lab train` runs."""

    name: str
    model: ModelConfig
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        """Refuse training sequences that no window fits into, and more records than words."""
        attentions = self.model.build(0, "meta").attentions
        window = max((a.compressor.window for a in attentions if a.compressor), default=1)
        length, field = self.data.length, "data.length"
        if self.data.kind == "lookup":
            length = 1 + RECORD * (max(self.train.levels) + self.train.questions)
            field = "train.levels and train.questions"
            _check_levels(self.train)
        if length < window:
            raise UsageError(
                f"{field}: training sequences of {length} tokens never fill the compressor's window"
                f" of {window}"
            )

    def with_train(self, **changes: Any) -> Experiment:  # noqa: ANN401 - any setting
        """Return the same experiment with other training settings."""
        return replace(self, train=replace(self.train, **changes))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready settings."""
        data, train = asdict(self.data), asdict(self.train)
        return {"name": self.name, "model": self.model.to_dict(), "data": data, "train": train}


def _check_levels(train: TrainConfig) -> None:
    most = Lookups(load_vocabulary()).max_records
    if max(train.levels) > most:
        raise UsageError(f"train.levels: at most {most} records have a word of their own")


def presets() -> list[str]:
    """Return the names of the experiments that ship with the lab."""
    folder = resources.files("kvphase.lab") / "presets"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith("yaml"))


def read_experiment(
    source: str, changes: Sequence[str] = (), imports: Sequence[Path] = ()
) -> Experiment:
    """Read an experiment.

    Args:
        source: A YAML or JSON file, or the name of a preset.
        changes: Settings to change, as ``train.steps=100`` with a value in YAML.
        imports: Python files with compressor designs; the file's own ``imports`` count too.

    Raises:
        UsageError: The file cannot be read, or a setting is unknown or does not fit.
    """
    text, name = _text(source)
    raw = _parse(text, source)
    for change in changes:
        _change(raw, change)
    listed = raw.pop("imports", [])
    # what a file imports stands beside it
    import_designs([*imports, *(Path(source).parent / str(file) for file in listed)])
    unknown = set(raw) - {"name", "model", "data", "train"}
    if unknown:
        raise UsageError(f"{source}: {sorted(unknown)[0]} is not a part of an experiment")
    data = fill(DataConfig, raw.get("data") or {}, "data")
    model: dict[str, Any] = {"vocab_size": _vocab_size(data), **(raw.get("model") or {})}
    return Experiment(
        name=str(raw.get("name", name)),
        model=ModelConfig.from_dict(model),
        data=data,
        train=fill(TrainConfig, raw.get("train") or {}, "train"),
    )


def _vocab_size(data: DataConfig) -> int:
    """Size of the vocabulary of ``data``, without reading any text."""
    if data.kind == "lookup":
        return len(load_vocabulary().tokens)
    return Texts.size(data.tokenizer)


def _text(source: str) -> tuple[str, str]:
    """The text of a file or preset, and a name for it."""
    path = Path(source)
    if path.suffix in {".yaml", ".yml", ".json"}:
        try:
            return path.read_text("utf-8"), path.stem
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{source} cannot be read: {error}") from error
    if source not in presets():
        raise UsageError(
            f"{source} is neither a .yaml or .json file nor a preset ({', '.join(presets())})"
        )
    preset = resources.files("kvphase.lab") / "presets" / f"{source}.yaml"
    return preset.read_text("utf-8"), source


def _parse(text: str, where: str) -> dict[str, Any]:
    """YAML, of which JSON is a part."""
    try:
        parsed = json.loads(text)
    except ValueError:
        yaml = _yaml(where)
        try:
            parsed = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(f"{where} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"{where} must hold settings by name")
    return parsed


def _yaml(where: str) -> Any:  # noqa: ANN401 - it ships no types
    """The YAML reader, imported late: JSON needs none."""
    try:
        return import_module("yaml")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{where} is not JSON, and YAML needs pyyaml: pip install 'kvphase[lab]'"
        ) from error


def _change(raw: dict[str, Any], change: str) -> None:
    """Apply ``a.b.c=value`` to the nested settings."""
    path, equals, text = change.partition("=")
    if not equals:
        raise UsageError(f"--set {change}: write it as train.steps=100")
    *parents, last = path.strip().split(".")
    for parent in parents:
        raw = raw.setdefault(parent, {})
        if not isinstance(raw, dict):
            raise UsageError(f"--set {change}: {parent} holds no settings")
    raw[last] = _parse(f"value: {text}", f"--set {change}")["value"]
