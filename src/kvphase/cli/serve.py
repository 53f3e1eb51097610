"""``kvphase serve``: a toy model behind a model server's HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["serve"]


def serve(
    toy: Annotated[str, typer.Argument(help="toy:w8s4, toy:full, toy:w4s4 or toy:w8s8.")],
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="What goes wrong; may be repeated: refuse, loading, html, 5xx=P, 429=P, reset=P, "
            "half-json=P, empty=P, cut=TOKENS, forget-cache, wrong-on-hit=P, prefill-split=P, "
            "random=P, question-residue=R, restart=REQUESTS, busy=P, batch=P, decode=P, "
            "speculative=P, long=TOKENS, level=P, after=REQUESTS, seed=N "
            "(P: a probability, 1 if left out)."
        ),
    ] = None,
    dialect: Annotated[
        str,
        typer.Option(
            help="Whose API is spoken: llama-server, vllm, sglang, ollama, lmstudio, mlx, ds4, "
            "deepseek, openai, chat."
        ),
    ] = "llama-server",
    throttle: Annotated[
        float | None, typer.Option(min=1, help="Prompt tokens evaluated per second at most.")
    ] = None,
) -> None:
    """Serve a toy model behind llama-server's HTTP API, or another server's, until Ctrl-C.

    The address is printed on stderr. --fault makes the server misbehave, to test clients with.
    """
    from kvphase.serve import Faults, run

    run(toy, host, port, Faults.parse(fault or []), throttle, dialect)
