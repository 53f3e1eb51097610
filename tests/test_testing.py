"""The public test double: every dialect, every fault, with and without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from kvphase.errors import UsageError
from kvphase.runtimes.toy import ToyWords
from kvphase.testing import DIALECTS, Faults, app, double, write_tokenizer
from kvphase.tokens import survey
from kvphase.tokens.local import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FACTS = " cat: Alice; dog: Bob; cow: Carol;"
QUESTION = f"{FACTS} dog:"
LENGTH = 15
"""Tokens of the question with BOS."""
PATHS = {
    "llama-server": "/completion",
    "sglang": "/generate",
    "ollama": "/api/generate",
    "ds4": "/v1/chat/completions",
    "deepseek": "/chat/completions",
    "chat": "/v1/chat/completions",
}
"""Where the others than those with OpenAI's completions answer."""


def body(dialect: str, model: str, prompt: str) -> dict[str, Any]:
    """A greedy question of one answer token, as the dialect wants it."""
    named = {"model": model, "temperature": 0}
    if dialect == "llama-server":
        return {"prompt": prompt, "n_predict": 1, "temperature": 0}
    if dialect == "sglang":
        return {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": 1}}
    if dialect == "ollama":
        options = {"temperature": 0, "num_predict": 1}
        return {**named, "prompt": prompt, "raw": True, "stream": False, "options": options}
    if "chat" in PATHS.get(dialect, ""):
        return {**named, "messages": [{"role": "user", "content": prompt}], "max_tokens": 1}
    return {**named, "prompt": prompt, "max_tokens": 1}


def said(answer: dict[str, Any]) -> str:
    """The answer's text, wherever the dialect puts it."""
    if "choices" in answer:
        choice = answer["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])
    return str(next(answer[name] for name in ("content", "text", "response") if name in answer))


def counted(answer: dict[str, Any]) -> int:
    """The server's count of prompt tokens."""
    places = [answer, answer.get("usage") or {}, answer.get("meta_info") or {}]
    names = ("prompt_tokens", "prompt_eval_count", "tokens_evaluated")
    return int(next(place[name] for place in places for name in names if name in place))


def post(dialect: str, client: httpx2.Client, prompt: str = QUESTION) -> httpx2.Response:
    path = PATHS.get(dialect, "/v1/completions")
    return client.post(path, json=body(dialect, "toy:full", prompt))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_answers_and_counts(dialect: str) -> None:
    with double("full", dialect=dialect) as server, httpx2.Client(base_url=server.url) as client:
        answers = [post(dialect, client, f"{FACTS}{key}:").json() for key in (" cat", " dog")]
        assert [said(answer) for answer in answers] == [" Alice", " Bob"]
        assert [counted(answer) for answer in answers] == [LENGTH, LENGTH]
        assert (server.model, server.requests) == ("toy:full", 2)
        assert client.get("/nothing/there").status_code == 404


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "llama-server"])
def test_words_that_no_toy_knows_are_counted_by_their_bytes(dialect: str) -> None:
    with double("full", dialect=dialect) as server, httpx2.Client(base_url=server.url) as client:
        assert counted(post(dialect, client, "né 猫").json()) == 1 + len("né 猫".encode())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_faults_are_switched_while_it_runs(dialect: str) -> None:
    with double("full", dialect=dialect) as server, httpx2.Client(base_url=server.url) as client:
        assert post(dialect, client).status_code == 200
        server.faults = "5xx"
        assert post(dialect, client).status_code == 500
        server.faults = "429"
        refused = post(dialect, client)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        server.faults = "empty"
        assert said(post(dialect, client).json()) == ""
        server.faults = "half-json"
        with pytest.raises(json.JSONDecodeError):
            post(dialect, client).json()
        server.faults = "reset"
        with pytest.raises(httpx2.TransportError):
            post(dialect, client)
        server.faults = "refuse"
        with pytest.raises(httpx2.TransportError):
            post(dialect, client)
        server.faults = Faults(random=1.0)
        assert said(post(dialect, client).json()) != " Bob"
        server.faults = "cut=10"
        assert counted(post(dialect, client).json()) == 10
        server.faults = ""
        assert said(post(dialect, client).json()) == " Bob"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_model_after_a_restart(dialect: str) -> None:
    with (
        double("full", dialect=dialect, faults="restart=1") as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        assert said(post(dialect, client).json()) == " Bob"
        with pytest.raises(httpx2.TransportError):
            post(dialect, client)
        assert server.model == "toy:w4s4"
        asked = body(dialect, server.model, QUESTION)
        assert client.post(PATHS.get(dialect, "/v1/completions"), json=asked).status_code == 200


def test_prefill_in_pieces_that_do_not_fit_the_groups() -> None:
    """Wrong only where the cached part ends inside a group of four tokens."""
    with (
        double("full", dialect="openai", faults="prefill-split") as server,
        httpx2.Client(base_url=server.url) as client,
    ):
        for pad in range(4):
            facts = " and" * pad + FACTS
            cold = said(post("openai", client, f"{facts} dog:").json())
            warm = said(post("openai", client, f"{facts} cow:").json())
            assert cold == " Bob"
            assert (warm == " Carol") == ((13 + pad) % 4 == 0)
            server.desk.forget()


def test_in_process_without_a_socket() -> None:
    async def ask() -> str:
        transport = httpx2.ASGITransport(app=app("full", dialect="openai"))
        async with httpx2.AsyncClient(transport=transport, base_url="http://double") as client:
            asked = body("openai", "toy:full", QUESTION)
            return said((await client.post("/v1/completions", json=asked)).json())

    assert asyncio.run(ask()) == " Bob"


@pytest.mark.parametrize("dialect", ["openai", "vllm", "mlx", "chat", "deepseek"])
def test_streams_end_as_servers_end_them(dialect: str) -> None:
    with double("full", dialect=dialect) as server, httpx2.Client(base_url=server.url) as client:
        asked = body(dialect, "toy:full", QUESTION) | {"stream": True, "max_tokens": 3}
        text = client.post(PATHS.get(dialect, "/v1/completions"), json=asked).text
    *events, done = [line.removeprefix("data: ") for line in text.split("\n") if line]
    choices = [json.loads(event)["choices"][0] for event in events]
    spelled = "".join(one["text"] if "text" in one else one["delta"]["content"] for one in choices)
    assert spelled.startswith(" Bob")
    assert done == "[DONE]"
    assert [one["finish_reason"] for one in choices] == [None, None, None, "length"]


def test_ollama_streams_lines() -> None:
    with double("full", dialect="ollama") as server, httpx2.Client(base_url=server.url) as client:
        asked = body("ollama", "toy:full", QUESTION)
        del asked["stream"]
        lines = client.post("/api/generate", json=asked).text.splitlines()
    answers = [json.loads(line) for line in lines]
    assert "".join(answer["response"] for answer in answers) == " Bob"
    assert [answer["done"] for answer in answers] == [False, True]
    assert answers[-1]["prompt_eval_count"] == LENGTH


def test_deepseek_persists_whole_units() -> None:
    """A+B stores; A+C misses, but stores A; A+D hits."""
    facts = " and" * 100 + FACTS
    with double("full", dialect="deepseek") as server, httpx2.Client(base_url=server.url) as client:
        usages = [
            post("deepseek", client, f"{facts}{key}:").json()["usage"]
            for key in (" cat", " dog", " cow", " dog")
        ]
    assert [one["prompt_cache_hit_tokens"] for one in usages] == [0, 0, 113, 113]
    assert all(
        one["prompt_cache_hit_tokens"] + one["prompt_cache_miss_tokens"] == one["prompt_tokens"]
        for one in usages
    )


def test_vllm_finds_whole_blocks_and_nothing_under_a_salt() -> None:
    facts = " and" * 200 + FACTS
    with double("full", dialect="vllm") as server, httpx2.Client(base_url=server.url) as client:
        found = []
        for key, salt in ((" cat", None), (" dog", None), (" cow", "x"), (" cow", None)):
            asked = body("vllm", "toy:full", f"{facts}{key}:") | {"cache_salt": salt}
            usage = client.post("/v1/completions", json=asked).json()["usage"]
            found.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert found == [0, 128, 0, 128]


def test_ollama_cuts_long_prompts_without_a_word() -> None:
    with (
        double("full", dialect="ollama") as server,
        httpx2.Client(base_url=server.url, timeout=60) as client,
    ):
        answer = post("ollama", client, " and" * 4200 + QUESTION).json()
    assert answer["prompt_eval_count"] == 2048
    assert answer["response"] == " Bob"


def test_lm_studio_lists_what_is_not_loaded_too() -> None:
    with double("full", dialect="lmstudio") as server, httpx2.Client(base_url=server.url) as client:
        models = client.get("/api/v1/models").json()["models"]
        assert [len(model["loaded_instances"]) for model in models] == [1, 0]
        assert len(client.get("/v1/models").json()["data"]) == 2


def test_tokenizer_reads_as_the_server_counts(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer, words = load(tmp_path / "tokenizer.json"), ToyWords.load()
    assert (tokenizer.bos, tokenizer.bos_text) == ((words.bos,), "<s>")

    async def toy(texts: Sequence[str]) -> list[list[int]]:
        return [words.encode(text) for text in texts]

    assert asyncio.run(survey(tokenizer.tokenize)) == asyncio.run(survey(toy))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "telnet"}, "no dialect called 'telnet'"),
        ({"faults": "gremlins"}, "no fault called 'gremlins'"),
        ({"model": "w0s0"}, "no toy model called 'w0s0'"),
    ],
)
def test_what_there_is_not(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        app(**options)  # type: ignore[arg-type]  # only texts here
