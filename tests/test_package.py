from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import kvphase


def test_every_public_name_resolves_and_the_lazy_table_matches_the_typed_one() -> None:
    for name in kvphase.__all__:
        assert getattr(kvphase, name) is not None
    source = ast.parse(Path(kvphase.__file__).read_text("utf-8"))
    typed = {
        alias.name: node.module
        for block in source.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazy = {name: f"kvphase.{module}" for name, module in kvphase._WHERE.items()}
    assert typed == lazy
    assert set(kvphase.__all__) == {*lazy, "__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        importlib.import_module("kvphase").nothing  # noqa: B018
