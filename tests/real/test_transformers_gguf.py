"""A small trained DeepSeek-V4 of transformers, written as GGUF, on a real llama-server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest
import torch

from kvphase.runtimes.transformers_model import SavedModel, load
from real.deepseek4_gguf import write

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.real, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("serve_gguf.py")
FOLDER = Path(__file__).with_name("models") / "deepseek-v4"
HALF_CACHE = 0.02
"""What a key cache in half precision may move a log-probability by: its keys have 11 bits, scores
up to 16 are rounded by up to 2**-11 of themselves, and two layers add up."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of llama.cpp's server with that model."""
    path = tmp_path_factory.mktemp("v4") / "small.gguf"
    write(FOLDER, path)
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), str(path), "--threads", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"the server ended with {process.wait()}"
        yield address
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture(scope="module")
def saved() -> SavedModel:
    return load(FOLDER)


@pytest.mark.parametrize("length", [5, 16, 17, 30, 64, 157, 300, 1000])
def test_llama_cpp_gives_the_scores_of_transformers(
    server: str, saved: SavedModel, length: int
) -> None:
    """Shorter and longer than the window, and ending on every residue of the stride."""
    ids = [0, *np.random.default_rng(length).integers(1, 231, length - 1).tolist()]
    body: dict[str, Any] = {"prompt": ids, "n_predict": 1, "n_probs": 200, "temperature": 0}
    answer = httpx2.post(f"{server}/completion", json=body, timeout=120).json()
    told = answer["completion_probabilities"][0]["top_logprobs"]
    logits, _ = saved.extend(None, ids)
    expected = torch.tensor(logits[-1]).log_softmax(-1).numpy()
    off = [abs(each["logprob"] - float(expected[each["id"]])) for each in told]
    assert len(off) == 200
    assert max(off) < HALF_CACHE
