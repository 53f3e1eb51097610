"""The server as a process and as a fixture: start, address, Ctrl-C, clients that leave."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx2
import pytest

from kvphase.errors import UsageError
from kvphase.serve import create_app, run, serving

if TYPE_CHECKING:
    from kvphase.runtimes.toy import ToyEngine

Serve = Callable[..., httpx2.Client]


PROGRAM = """
from kvphase.runtimes.toy import ToyEngine, ToyWords
from kvphase.serve import run

class Silent:
    config, vocab_size, local_window, start = {}, 231, 16, object

run(ToyEngine("silent", Silent(), ToyWords.load()))
"""


def test_unknown_toy() -> None:
    with pytest.raises(UsageError, match="no toy model called 'w0s0'"):
        create_app("toy:w0s0")


def test_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1 port {port}"):
            run("w8s4", port=port)
    with pytest.raises(UsageError, match="cannot listen on nowhere"):
        run("w8s4", host="nowhere.invalid")


def test_ctrl_c_ends_it_quietly() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert line.startswith("toy:silent (toy model) listens on http://127.0.0.1:")
        url = line.split()[-1]
        assert httpx2.get(f"{url}/health").json() == {"status": "ok"}
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (0, b"", b"")


def test_a_client_that_leaves_stops_the_prefill(serve: Serve, engine: ToyEngine) -> None:
    client = serve(throttle=500)
    for stream in (True, False):
        before = engine.model.evaluated  # type: ignore[attr-defined]
        body = {"prompt": " and" * (500 + stream), "n_predict": 1, "stream": stream}
        with pytest.raises(httpx2.ReadTimeout):
            client.post("/completion", json=body | {"cache_prompt": False}, timeout=0.1)
        time.sleep(1.5)  # the whole prefill would take one
        assert engine.model.evaluated - before < 400  # type: ignore[attr-defined]
    assert client.get("/health").json() == {"status": "ok"}
    short = {"prompt": " and", "n_predict": 1, "temperature": 0}
    assert client.post("/completion", json=short).status_code == 200


def test_health_while_a_prefill_runs(serve: Serve, engine: ToyEngine) -> None:
    client = serve(throttle=100)
    body = {"prompt": " and" * 500, "n_predict": 1, "stream": True, "return_progress": True}
    with client.stream("POST", "/completion", json=body) as response:
        next(response.iter_lines())
        assert httpx2.get(f"{client.base_url}/health").status_code == 200
        assert engine.model.evaluated < 500  # type: ignore[attr-defined]


def test_serving_ends_with_its_block(engine: ToyEngine) -> None:
    with serving(engine) as url:
        assert httpx2.get(f"{url}/health").status_code == 200
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/health")
