"""The command's own text and its options."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from kvphase.cli.serve import serve
from kvphase.errors import UsageError
from kvphase.serve.faults import FAULT_HELP


def test_help_names_every_fault() -> None:
    option: Any = get_type_hints(serve, include_extras=True)["fault"].__metadata__[0]
    assert FAULT_HELP.partition(" (")[0] in option.help


def test_bad_faults_and_toys_are_refused() -> None:
    with pytest.raises(UsageError, match="no fault called 'x'"):
        serve("toy:w8s4", fault=["x"])
    with pytest.raises(UsageError, match="no toy model called 'w0s0'"):
        serve("toy:w0s0")
