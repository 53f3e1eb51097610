"""Compressor designs, one a file; ``docs/lab.md`` shows how to add yours.

A design is a frozen dataclass with its settings, registered by `design`, and the module that it
builds. Those below ship with kvphase. Others are found by the name of their design once their file
was imported: by the caller, by an entry point in the group ``kvphase.compressors``, or by
`import_designs`, which also reads the environment variable ``KVPHASE_DESIGNS``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from kvphase.errors import UsageError
from kvphase.lab.compressors.base import (
    REGISTRY,
    Compressor,
    CompressorConfig,
    KVShape,
    RMSNorm,
    design,
)
from kvphase.lab.compressors.chunked import Chunked, ChunkedConfig
from kvphase.lab.compressors.dsv4 import DSV4Config
from kvphase.lab.compressors.dsv41 import DSV41Config
from kvphase.lab.compressors.mla import MLAConfig
from kvphase.lab.compressors.none import NoCompression, NoneConfig
from kvphase.lab.fields import fill

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "DESIGNS",
    "Chunked",
    "ChunkedConfig",
    "Compressor",
    "CompressorConfig",
    "DSV4Config",
    "DSV41Config",
    "KVShape",
    "MLAConfig",
    "NoCompression",
    "NoneConfig",
    "RMSNorm",
    "compressor_from_dict",
    "compressor_to_dict",
    "design",
    "import_designs",
]

DESIGNS = REGISTRY
GROUP = "kvphase.compressors"
VARIABLE = "KVPHASE_DESIGNS"


def import_designs(files: Iterable[Path] = ()) -> None:
    """Import files with designs: ``files``, and those that ``KVPHASE_DESIGNS`` lists.

    Raises:
        UsageError: A file is missing or cannot be imported.
    """
    listed = [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    for file in (*files, *listed):
        name = f"kvphase_design_{file.stem}_{crc32(str(file.resolve()).encode()):x}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise UsageError(f"{file} is not a Python file with a compressor design")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            if isinstance(error, UsageError):
                raise
            problem = f"{type(error).__name__}: {error}"
            raise UsageError(f"{file} cannot be imported: {problem}") from error


def compressor_to_dict(config: CompressorConfig) -> dict[str, Any]:
    """Return the settings as JSON-ready values, with the design's name under ``name``."""
    settings: dict[str, Any] = asdict(config)  # type: ignore[call-overload]
    return {"name": config.name, **settings}


def compressor_from_dict(data: Mapping[str, Any]) -> CompressorConfig:
    """Rebuild what `compressor_to_dict` wrote.

    Raises:
        UsageError: There is no such design, or it has no such settings.
    """
    settings = dict(data)
    name = settings.pop("name", None)
    if name not in REGISTRY:
        _look_elsewhere(name)
    if name not in REGISTRY:
        known = ", ".join(sorted(REGISTRY))
        raise UsageError(
            f"compressor.name: no compressor design is called {name!r}; known: {known}. A design of"
            f" your own is imported from the file that the environment variable {VARIABLE} names"
            " (`kvphase lab` also takes --import FILE)"
        )
    return fill(REGISTRY[name], settings, "compressor")


def _look_elsewhere(name: object) -> None:
    """Import the design ``name`` from where its author put it, if anywhere."""
    import_designs()
    for point in entry_points(group=GROUP):
        if point.name == name:
            point.load()
