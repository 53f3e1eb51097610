"""Serves one GGUF file with llama.cpp's own server, its metrics on, until standard input closes.

python benchmarks/speed_server.py MODEL.gguf CONTEXT

The first line on standard output is the server's address.
"""

from __future__ import annotations

import sys

import xllamacpp

THREADS = 1
"""Threads that wait for each other spin: on cores that are shared, two are slower than one."""


def main() -> None:
    """Load the model, say where it listens, and stay until the parent lets go of stdin."""
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.n_ctx = int(sys.argv[2])
    params.n_parallel = 1
    params.cpuparams.n_threads = THREADS
    params.cpuparams_batch.n_threads = THREADS
    params.warmup = False
    params.fit_params = False
    params.endpoint_metrics = True
    params.port = 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
