"""Every response has the fields that llama.cpp's own server gave (``llama_server.json``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

RECORDED = json.loads(Path(__file__).with_name("llama_server.json").read_text())
PROMPT = " cat: Alice; dog: Bob; dog:"
BASE = {"prompt": PROMPT, "n_predict": 2, "temperature": 0}

Serve = Callable[..., httpx2.Client]


def same(name: str, content: dict[str, Any], *more: str) -> None:
    assert sorted(content) == sorted([*RECORDED[name], *more])


def events(response: httpx2.Response) -> list[dict[str, Any]]:
    lines = response.text.split("\n\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_props(serve: Serve) -> None:
    props = serve().get("/props").json()
    same("props", props, "kvphase")
    same("props.default_generation_settings", props["default_generation_settings"])
    same("props.params", props["default_generation_settings"]["params"])
    assert props["default_generation_settings"]["n_ctx"] == 600
    assert props["total_slots"] == 1
    assert props["chat_template"] == ""
    assert props["model_alias"] == "toy:lookup"
    assert props["build_info"].startswith("kvphase ")
    assert props["kvphase"] == {"local_window": 16}


def test_slots(serve: Serve) -> None:
    client = serve()
    (unused,) = client.get("/slots").json()
    same("slots.unused", unused)
    assert (unused["id"], unused["n_ctx"], unused["is_processing"]) == (0, 600, False)
    client.post("/completion", json=BASE)
    (used,) = client.get("/slots").json()
    same("slots.used", used)
    same("props.params", used["params"])
    same("slots.next_token", used["next_token"][0])
    assert used["id_task"] == 0
    assert client.get("/props").json()["endpoint_slots"]


def test_models(serve: Serve) -> None:
    models = serve().get("/v1/models").json()
    same("models", models)
    same("models.data", models["data"][0])
    same("models.data.meta", models["data"][0]["meta"])
    assert models["data"][0]["meta"]["n_ctx"] == 600


def test_completion(serve: Serve) -> None:
    client = serve()
    answer = client.post("/completion", json=BASE | {"n_probs": 3}).json()
    same("completion", answer)
    same("completion.generation_settings", answer["generation_settings"])
    same("completion.timings", answer["timings"])
    same("completion.probability", answer["completion_probabilities"][0])
    same("completion.top_logprob", answer["completion_probabilities"][0]["top_logprobs"][0])
    same("completion.without_scores", client.post("/completion", json=BASE).json())


def test_stream(serve: Serve) -> None:
    client = serve()
    response = client.post("/completion", json=BASE | {"n_probs": 1, "stream": True})
    assert response.headers["content-type"] == "text/event-stream"
    first, *_, last = events(response)
    same("stream.token", first)
    same("stream.final", last)
    more = {"stream": True, "return_progress": True, "timings_per_token": True}
    first, *_ = events(client.post("/completion", json=BASE | more))
    same("stream.progress", first)
    same("stream.progress.prompt_progress", first["prompt_progress"])


def test_openai(serve: Serve) -> None:
    client = serve()
    asked = {"prompt": PROMPT, "max_tokens": 2, "temperature": 0, "logprobs": 2}
    answer = client.post("/v1/completions", json=asked).json()
    same("openai", answer)
    same("openai.choice", answer["choices"][0])
    same("openai.usage", answer["usage"])
    entry = answer["choices"][0]["logprobs"]["content"][0]
    same("completion.probability", entry)
    response = client.post("/v1/completions", json=asked | {"stream": True})
    first, *_, last = events(response)
    same("openai.stream.token", first)
    same("openai.stream.final", last)
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("name", "path", "request_body"),
    [
        ("badjson", "/completion", b"{nope"),
        ("noprompt", "/completion", b"{}"),
        ("badprompt", "/completion", b'{"prompt": {"a": 1}}'),
        ("emptyp", "/completion", b'{"prompt": []}'),
        ("badid", "/completion", b'{"prompt": [1, 99999999]}'),
        ("badtype", "/completion", b'{"prompt": " cat", "n_predict": "x"}'),
        ("long", "/completion", json.dumps({"prompt": [1] * 600}).encode()),
        ("apply none", "/apply-template", b"{}"),
        ("404", "/nope", b"{}"),
    ],
)
def test_errors(serve: Serve, name: str, path: str, request_body: bytes) -> None:
    response = serve().post(path, content=request_body)
    error = response.json()["error"]
    recorded = RECORDED["errors"][name]
    assert response.status_code == error["code"] == recorded["status"]
    assert error["type"] == recorded["type"]
    assert sorted(error) == recorded["keys"]


def test_server_header(serve: Serve) -> None:
    assert serve().get("/health").headers["server"] == "llama.cpp"
