"""Compressor designs, one a file.

To add yours:

1. copy ``chunked.py`` to a new file and rename its two classes;
2. give the configuration a new ``name`` and the fields that your design has;
3. write ``positions`` and ``visible``: where an entry stands, and who may see it;
4. write the module's ``forward``: ``x [B, T, D]`` to keys and values ``[B, G, N, d]``;
5. add the configuration to ``DESIGNS`` below;
6. run ``pytest tests/lab``: the matrix there checks causality and shapes of every design.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvphase.lab.compressors.base import Compressor, CompressorConfig, KVShape, RMSNorm
from kvphase.lab.compressors.chunked import Chunked, ChunkedConfig
from kvphase.lab.compressors.none import NoCompression, NoneConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DESIGNS",
    "Chunked",
    "ChunkedConfig",
    "Compressor",
    "CompressorConfig",
    "KVShape",
    "NoCompression",
    "NoneConfig",
    "RMSNorm",
    "compressor_from_dict",
    "compressor_to_dict",
]

DESIGNS: dict[str, type[ChunkedConfig] | type[NoneConfig]] = {
    design.name: design for design in (ChunkedConfig, NoneConfig)
}


def compressor_to_dict(config: ChunkedConfig | NoneConfig) -> dict[str, Any]:
    """Return the settings as JSON-ready values, with the design's name under ``name``."""
    return {"name": config.name, **asdict(config)}


def compressor_from_dict(data: Mapping[str, Any]) -> ChunkedConfig | NoneConfig:
    """Rebuild what `compressor_to_dict` wrote; an unknown name raises ``ValueError``."""
    settings = dict(data)
    name = settings.pop("name", None)
    if name not in DESIGNS:
        raise ValueError(f"no compressor design is called {name!r}; known: {sorted(DESIGNS)}")
    return DESIGNS[name](**settings)
