"""A real mlx_lm.server with a small Llama: measured, and asked the same by a plain client."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

import kvphase
from kvphase.runs.check import run_sync
from kvphase.runs.inspect import inspect
from kvphase.runtimes.adapters import Choice
from real import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("mlx_lm") is None, reason="needs mlx-lm (Linux and macOS)"),
]

MODEL = Path(__file__).with_name("models") / "llama"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with RoPE's base where mlx-lm looks for it."""
    path = tmp_path_factory.mktemp("mlx") / "llama"
    shutil.copytree(MODEL, path)
    config = json.loads((path / "config.json").read_text("utf-8"))
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """Its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cache = folder.parent / "hub"
    cache.mkdir()
    command = [
        sys.executable,
        "-m",
        "mlx_lm",
        "server",
        "--model",
        str(folder),
        "--port",
        str(port),
    ]
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as process:
        address = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 120
            while not _listens(address):
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()


def _listens(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/v1/models", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


def test_it_is_recognised(server: str, folder: Path) -> None:
    found = run_sync(inspect(server, Choice(tokenizer=str(folder))))
    assert found.about.runtime == "mlx_lm.server"
    assert found.vocab is not None
    assert found.limits.cache_report
    assert not found.limits.ids
    assert str(folder.parent) not in f"{found.about}"


def test_a_plain_client_gets_the_same_answers_and_counts(
    server: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "mlx.kvphase"
    run = kvphase.check(
        server,
        kvphase.Settings(
            context=600, records=24, questions=96, adapt=False, early=False, confirm="never"
        ),
        out=out,
        choice=Choice(tokenizer=str(folder)),
    )
    assert run.verdict.n == 96
    assert run.verdict.audit.repeat_flips == 0
    cached, prefilled = run.totals["cached"], run.totals["prefilled"]
    assert cached is not None
    assert prefilled is not None
    assert cached > 10 * prefilled  # each prefix is paid for once
    words = ["plain", str(out), server, "--text", str(folder)]
    monkeypatch.setattr(sys, "argv", words)
    assert plain.main() == 0, capsys.readouterr().out
