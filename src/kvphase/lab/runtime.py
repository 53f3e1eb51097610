"""A checkpoint of the lab as a runtime: what ``kvphase check lab:CHECKPOINT`` measures."""

from __future__ import annotations

import hashlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kvphase.errors import UsageError
from kvphase.lab.checkpoint import NAME, find_checkpoint, load_checkpoint
from kvphase.runtimes.toy import ToyEngine, ToyRuntime, ToyWords
from kvphase.types import About
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from kvphase.lab.transformer import Decoder, KVCache

__all__ = ["LabModel", "LabRuntime", "open_checkpoint"]


class LabModel:
    """A decoder as the toy engine uses models: one text at a time, ids in, numpy logits out."""

    def __init__(self, decoder: Decoder) -> None:
        """Take over ``decoder``; its weights become fp64.

        So the cached and the one-shot way agree far below what decides an answer.
        """
        self.decoder: Decoder = decoder.double().eval()
        self.config: dict[str, Any] = decoder.config.to_dict()
        self.vocab_size: int = decoder.config.vocab_size
        self.local_window: int = decoder.config.local_window
        if decoder.config.tail:
            self.local_window = max(decoder.strides)

    def start(self) -> KVCache:
        """Return the cache of no tokens."""
        return self.decoder.start(1)

    def extend(self, cache: KVCache, ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits ``[len(ids), vocab]`` after each of ``ids``; the cache grows."""
        logits = self.decoder.extend(cache, torch.tensor([list(ids)], dtype=torch.long))
        array: NDArray[np.float32] = logits[0].float().numpy()
        return array


class LabRuntime(ToyRuntime):
    """A trained model in this process, with a real prefix cache; greedy answers."""

    def __init__(self, engine: ToyEngine, about: About) -> None:
        """Use ``engine``, described by ``about``."""
        super().__init__(engine)
        self._about = about

    @property
    def about(self) -> About:
        """What the model is. It is the user's own, so nothing is marked as a demonstration."""
        return self._about


@asynccontextmanager
async def open_checkpoint(path: str | Path) -> AsyncIterator[LabRuntime]:
    """Open a checkpoint, or the folder of a run, as a runtime.

    Args:
        path: ``checkpoint.safetensors``, or the folder that holds it.

    Raises:
        UsageError: There is none, it is damaged, its design is unknown, or it was trained on text:
            then its vocabulary has no words to build records from.
    """
    file = find_checkpoint(Path(path)).resolve()
    decoder, settings = load_checkpoint(file)
    words = ToyWords.load()
    if settings["data"]["kind"] != "lookup" or decoder.config.vocab_size != len(words.tokens):
        raise UsageError(
            f"{file.name} was trained on text: only models trained on lookups (data.kind: lookup)"
            " have a vocabulary of words to ask records with"
        )
    name = file.parent.name if file.name == NAME else file.stem
    engine = ToyEngine(name, LabModel(decoder), words)
    engine.name = f"lab:{name}"
    engine.parameters = sum(weight.numel() for weight in decoder.parameters())
    about = _about(engine, decoder, settings, file)
    async with LabRuntime(engine, about) as runtime:
        yield runtime  # type: ignore[misc]  # __aenter__ returns the runtime itself


def _about(engine: ToyEngine, decoder: Decoder, trained: dict[str, Any], file: Path) -> About:
    """Describe the model; the digest of its weights tells two trainings of one name apart."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    settings = engine.model.config["compressor"]
    parts = [f"{key} {value}" for key, value in settings.items() if key != "name"]
    return About(
        target=engine.name,
        runtime="lab",
        build=f"kvphase {__version__}, torch {torch.__version__}",
        model=f"{engine.name.removeprefix('lab:')} {digest}",
        extra={
            "compression": ", ".join([settings["name"], *parts]),
            "layers": str(decoder.config.layers),
            "parameters": f"{engine.parameters:,}",
            "trained": f"{trained['step']:,} of {trained['steps']:,} steps",
        },
    )
