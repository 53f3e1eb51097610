"""What the server answers: tokens, counts, streams, limits, refusals."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest

from kvphase.runtimes.toy import ToyEngine, ToyRuntime
from kvphase.types import Arm, Ask, Reply

FACTS = " cat: Alice; dog: Bob; cow: Carol;"
GREEDY = {"n_predict": 1, "temperature": 0}

Serve = Callable[..., httpx2.Client]


def ask(client: httpx2.Client, prompt: object, **more: object) -> dict[str, Any]:
    response = client.post("/completion", json={"prompt": prompt, **GREEDY, **more})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def counts(answer: dict[str, Any]) -> tuple[int, int]:
    return answer["timings"]["cache_n"], answer["timings"]["prompt_n"]


def events(response: httpx2.Response) -> list[dict[str, Any]]:
    lines = response.text.split("\n\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_tokens_and_text(serve: Serve, engine: ToyEngine) -> None:
    client, words = serve(), engine.words

    def tokens(**body: object) -> Any:  # noqa: ANN401 - two shapes
        return client.post("/tokenize", json=body).json()["tokens"]

    ids = words.encode(" cat:")
    assert tokens(content=" cat:") == ids
    assert tokens(content=" cat:", add_special=True) == [words.bos, *ids]
    assert tokens(content=[" cat", 1, ";"]) == words.encode(" cat:;")
    assert tokens(content="<s>") == [words.bos]
    assert tokens(content="<s>", parse_special=False) == [2**31 - 1] * 3
    assert tokens() == []
    assert tokens(content=" cat?", with_pieces=True) == [
        {"id": ids[0], "piece": " cat"},
        {"id": 2**31 - 1, "piece": "?"},
    ]
    text = client.post("/detokenize", json={"tokens": [0, *ids]}).json()
    assert text == {"content": "<s> cat:"}
    for path, body in {
        "/detokenize": {"tokens": [999]},
        "/tokenize": {"content": [999]},
        "/detokenize#": {"tokens": ["x"]},
    }.items():
        assert client.post(path, json=body).status_code == 400


def test_text_and_ids_are_the_same_prompt(serve: Serve, engine: ToyEngine) -> None:
    client, words = serve(), engine.words
    text = FACTS + " dog:"
    ids = [words.bos, *words.encode(text)]
    answers = [
        ask(client, prompt, cache_prompt=False, return_tokens=True)
        for prompt in (text, ids, [text[:5], *words.encode(text[5:])], "<s>" + text)
    ]
    assert [answer["content"] for answer in answers] == [" Bob"] * 4
    assert [answer["tokens"] for answer in answers] == [words.encode(" Bob")] * 4
    assert [answer["tokens_evaluated"] for answer in answers] == [15, 15, 15, 16]  # BOS twice
    assert answers[1]["prompt"] == "<s>" + text


def test_cache_counts_are_true(serve: Serve, engine: ToyEngine) -> None:
    client, model = serve(), engine.model
    first = ask(client, FACTS + " dog:")
    other = ask(client, FACTS + " cat:")
    again = ask(client, FACTS + " cat:")
    cold = ask(client, FACTS + " cat:", cache_prompt=False)
    assert [counts(answer) for answer in (first, other, again, cold)] == [
        (0, 15),
        (13, 2),
        (14, 1),
        (0, 15),
    ]
    assert [answer["content"] for answer in (first, other, again, cold)] == [
        " Bob",
        " Alice",
        " Alice",
        " Alice",
    ]
    assert model.evaluated == 15 + 2 + 1 + 15  # type: ignore[attr-defined]
    assert other["tokens_cached"] == 15


def test_answer_tokens_are_reused_too(serve: Serve) -> None:
    client = serve()
    assert ask(client, FACTS + " dog:", n_predict=2)["content"] == " Bob;"
    assert counts(ask(client, FACTS + " dog: Bob; cat:")) == (16, 3)


def test_prompts_that_part_early_are_reused_from_checkpoints(serve: Serve) -> None:
    client = serve()
    long = " and" * 300
    ask(client, long + FACTS + " dog:")
    assert counts(ask(client, long[: 4 * 290] + FACTS + " dog:")) == (256, 49)
    assert counts(ask(client, long[: 4 * 290] + " so" + FACTS + " dog:")) == (291, 15)


def test_scores(serve: Serve, engine: ToyEngine) -> None:
    vocab = len(engine.words.tokens)
    answer = ask(serve(), FACTS + " dog:", n_probs=vocab + 5)
    (entry,) = answer["completion_probabilities"]
    logprobs = [top["logprob"] for top in entry["top_logprobs"]]
    assert len(logprobs) == vocab
    assert logprobs == sorted(logprobs, reverse=True)
    assert math.fsum(map(math.exp, logprobs)) == pytest.approx(1)
    assert (entry["token"], entry["logprob"]) == (" Bob", logprobs[0])
    assert bytes(entry["bytes"]).decode() == " Bob"


def test_the_same_answers_as_in_process(serve: Serve, engine: ToyEngine) -> None:
    client, words = serve(), engine.words
    prefix = (words.bos, *words.encode(FACTS * 12))
    questions = [tuple(words.encode(f"{key}:")) for key in (" cat", " cow", " dog", " hen")]
    asks = [
        Ask(str(n), prefix, suffix, 1, " Bob", (" Bob",), Arm.SCREEN, n, 0, 0, 0, 3)
        for n, suffix in enumerate(questions * 2)
    ]

    async def run() -> list[Reply]:
        runtime = ToyRuntime(engine)
        return [await runtime.complete(each) for each in asks]

    for each, reply in zip(asks, asyncio.run(run()), strict=True):
        answer = ask(client, each.prompt, n_predict=3, n_probs=1000)
        top = answer["completion_probabilities"][0]["top_logprobs"]
        assert answer["content"] == reply.text
        assert [one["logprob"] for one in top if one["bytes"] == list(b" Bob")] == [reply.logprob]
        assert top[0]["logprob"] - top[1]["logprob"] == pytest.approx(reply.margin, abs=1e-12)


def test_stream_carries_the_same_answer(serve: Serve) -> None:
    client = serve()
    body = {"prompt": FACTS + " dog:", **GREEDY, "n_predict": 3, "n_probs": 2}
    whole = client.post("/completion", json=body).json()
    parts = events(client.post("/completion", json=body | {"stream": True}))
    assert "".join(part["content"] for part in parts) == whole["content"]
    scores = [part["completion_probabilities"][0] for part in parts[:-1]]
    assert scores == whole["completion_probabilities"]
    assert [part["stop"] for part in parts] == [False] * 3 + [True]
    assert parts[-1]["timings"]["cache_n"] == 14


def test_progress(serve: Serve) -> None:
    body = {"prompt": " and" * 300, **GREEDY, "stream": True, "return_progress": True}
    parts = events(serve().post("/completion", json=body))
    done = [part["prompt_progress"]["processed"] for part in parts if "prompt_progress" in part]
    assert done[:4] == [0, 128, 256, 293]
    assert done[-1] == parts[-1]["tokens_evaluated"] == 301


def test_limits(serve: Serve) -> None:
    client = serve()
    assert ask(client, FACTS, n_predict=0)["tokens_predicted"] == 1
    full = ask(client, FACTS, n_predict=-1)
    assert (full["tokens_predicted"], full["truncated"]) == (600 - 13, True)
    assert full["tokens_cached"] == 599
    body = {"prompt": [0] * 599, "n_predict": 1}
    assert client.post("/completion", json=body).json()["truncated"] is False


@pytest.mark.parametrize("stream", [True, False])
def test_stop_words(serve: Serve, stream: bool) -> None:
    body = {"prompt": FACTS + " dog:", **GREEDY, "n_predict": 9, "stop": ["b;", " Bo;"]}
    parts = events(serve().post("/completion", json=body | {"stream": True}))
    if not stream:
        parts = [serve().post("/completion", json=body).json()]
    assert "".join(part["content"] for part in parts) == " Bo"
    assert parts[-1]["stop_type"] == "word"
    assert parts[-1]["stopping_word"] == "b;"
    assert parts[-1]["tokens_predicted"] == 2


def test_sampling(serve: Serve) -> None:
    client = serve()
    hot = {"temperature": 5.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "n_predict": 8}
    drawn = [ask(client, FACTS, **hot, seed=seed)["content"] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert ask(client, FACTS + " dog:", **hot | {"top_k": 1})["content"].startswith(" Bob")
    assert ask(client, FACTS + " dog:", **hot | {"min_p": 1.0})["content"].startswith(" Bob")
    assert ask(client, FACTS + " dog:", **hot | {"top_p": 0.0})["content"].startswith(" Bob")


def test_several_prompts(serve: Serve) -> None:
    client = serve()
    answers = ask(client, [FACTS + " dog:", FACTS + " cat:"])
    assert isinstance(answers, list)
    assert [answer["content"] for answer in answers] == [" Bob", " Alice"]
    assert [answer["index"] for answer in answers] == [0, 1]
    streamed = {"prompt": [[0, 3], [0, 4]], **GREEDY, "stream": True}
    assert [e["index"] for e in events(client.post("/completion", json=streamed))] == [0, 0, 1, 1]
    assert client.post("/v1/completions", json={"prompt": ["a", "b"]}).status_code == 400
    assert client.post("/v1/completions", json={"prompt": [";", ";"]}).status_code == 501


@pytest.mark.parametrize(
    "more",
    [
        {"grammar": "root ::= x"},
        {"repeat_penalty": 1.1},
        {"post_sampling_probs": True},
        {"logit_bias": [[1, 2]]},
    ],
)
def test_what_toys_cannot_do_is_refused(serve: Serve, more: dict[str, object]) -> None:
    response = serve().post("/completion", json={"prompt": ";", **more})
    assert response.status_code == 501
    assert next(iter(more)) in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [[1], {"prompt": True}, {"prompt": "?"}, {"prompt": ";", "stop": [1]}]
)
def test_bad_requests(serve: Serve, body: object) -> None:
    response = serve().post("/completion", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, 400)


@pytest.mark.parametrize("scores", [0, 1, 20, 10**6])
@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_text_of_unknown_words_is_refused(serve: Serve, path: str, scores: int) -> None:
    client = serve()
    for prompt in ("The quick brown fox", " cat: Élodie", "\N{GRINNING FACE}", [" cat:", "?"]):
        response = client.post(path, json={"prompt": prompt, "n_probs": scores, **GREEDY})
        assert response.status_code == 400
        assert "invalid tokens" in response.json()["error"]["message"]


def test_text_of_known_words_is_scored(serve: Serve) -> None:
    answer = ask(serve(), FACTS + " dog:", n_probs=10**6)
    assert answer["content"] == " Bob"
    assert len(answer["completion_probabilities"][0]["top_logprobs"]) > 200


def test_no_template(serve: Serve) -> None:
    for path in ("/apply-template", "/v1/chat/completions"):
        response = serve().post(path, json={"messages": []})
        assert response.json()["error"]["type"] == "not_found_error"
        assert "no chat template" in response.json()["error"]["message"]
        assert response.status_code == 404


def test_clients_at_once_get_right_answers(serve: Serve) -> None:
    client = serve()

    async def run() -> list[str]:
        async with httpx2.AsyncClient(base_url=str(client.base_url), timeout=30) as shared:

            async def one(n: int) -> str:
                pad, key = " and" * (n % 3), (" cat", " dog", " cow")[n % 3]
                body = {"prompt": pad + FACTS + key + ":", **GREEDY}
                answer: str = (await shared.post("/completion", json=body)).json()["content"]
                return answer

            return list(await asyncio.gather(*map(one, range(24))))

    assert asyncio.run(run()) == [" Alice", " Bob", " Carol"] * 8


def test_slot_survives_random_prompts(serve: Serve, engine: ToyEngine) -> None:
    client, random = serve(), np.random.default_rng(3)
    base = random.integers(0, len(engine.words.tokens), 400)
    for _ in range(25):
        cut = int(random.integers(1, 400))
        prompt = [*base[:cut].tolist(), *random.integers(0, 9, int(random.integers(0, 5))).tolist()]
        warm = ask(client, prompt, n_predict=2, n_probs=1)
        assert sum(counts(warm)) == len(prompt)
        cache = engine.start()
        scores = engine.extend(cache, prompt)
        assert warm["completion_probabilities"][0]["id"] == scores.best
