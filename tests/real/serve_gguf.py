"""Serves one GGUF file with llama.cpp's own HTTP server until standard input closes.

    python tests/real/serve_gguf.py MODEL.gguf [--context N] [--threads N] [--slots N] [--kv q4_0]

The first line on standard output is the server's address.
"""

from __future__ import annotations

import argparse
import sys

import xllamacpp

KV = {
    "f16": xllamacpp.ggml_type.GGML_TYPE_F16,
    "q8_0": xllamacpp.ggml_type.GGML_TYPE_Q8_0,
    "q4_0": xllamacpp.ggml_type.GGML_TYPE_Q4_0,
}


def main() -> None:
    """Load the model, say where it listens, and stay until the parent lets go of stdin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kv", default="f16", help="type of the cached keys and values")
    options = parser.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_ctx = options.context
    params.n_parallel = options.slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.warmup = False
    params.fit_params = False
    params.port = options.port
    params.cache_type_k = params.cache_type_v = KV[options.kv]
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
