"""Every fault strikes when it is on, and not when it is off."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from kvphase.errors import UsageError
from kvphase.serve import Faults
from kvphase.serve.faults import draw

FACTS = " cat: Alice; dog: Bob; cow: Carol;"
RIGHT = {" cat:": " Alice", " dog:": " Bob", " cow:": " Carol"}

Serve = Callable[..., httpx2.Client]


def post(client: httpx2.Client, prompt: str, **more: object) -> httpx2.Response:
    body = {"prompt": prompt, "n_predict": 1, "temperature": 0, **more}
    return client.post("/completion", json=body)


def ask(client: httpx2.Client, prompt: str, **more: object) -> dict[str, Any]:
    response = post(client, prompt, **more)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def right(client: httpx2.Client, facts: str = FACTS, **more: object) -> list[bool]:
    return [ask(client, facts + key, **more)["content"] == name for key, name in RIGHT.items()]


def test_no_faults(serve: Serve) -> None:
    client = serve()
    for pad in range(4):
        assert right(client, " and" * pad + FACTS) == [True] * 3
    assert Faults() == Faults.parse([]) == Faults.parse(["", " , "])


def test_parse() -> None:
    faults = Faults.parse(["reset=0.01,cut=1024", "forget-cache", "question-residue", "5xx"])
    assert faults == Faults(reset=0.01, cut=1024, forget=True, residue=3, error=1.0)
    assert Faults.parse(["question-residue=0, wrong-on-hit=.5"]) == Faults(
        residue=0, wrong_on_hit=0.5
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resett", "no fault called 'resett'; there are: refuse, "),
        ("reset=2", "not a probability"),
        ("reset=nan", "not a probability"),
        ("busy=2", "not a probability"),
        ("reset=x", "cannot have the value 'x'"),
        ("refuse=1", "cannot have the value '1'"),
        ("cut", "cannot have the value ''"),
        ("cut=1", "below 2"),
        ("question-residue=4", "not below 4"),
        ("after=-1", "below 0"),
        ("html,html", "given twice"),
    ],
)
def test_parse_refuses(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Faults.parse([text])


def test_draws_are_even_and_repeatable() -> None:
    drawn = [draw(5, "reset", n) for n in range(2000)]
    assert drawn == [draw(5, "reset", n) for n in range(2000)]
    assert drawn != [draw(6, "reset", n) for n in range(2000)]
    assert 0.27 < sum(one < 0.3 for one in drawn) / 2000 < 0.33


def test_refuse(serve: Serve) -> None:
    with pytest.raises(httpx2.TransportError):
        serve("refuse").get("/health")


def test_refuse_after(serve: Serve) -> None:
    client = serve("refuse,after=2")
    assert ask(client, FACTS + " dog:")["content"] == " Bob"
    assert ask(client, FACTS + " cat:")["content"] == " Alice"
    for path in ("/health", "/props"):
        with pytest.raises(httpx2.TransportError):
            client.get(path)


def test_loading(serve: Serve) -> None:
    response = serve("loading").get("/health")
    assert response.status_code == 503
    assert response.json()["error"] == {
        "message": "Loading model",
        "type": "unavailable_error",
        "code": 503,
    }


def test_html(serve: Serve) -> None:
    client = serve("html")
    for response in (client.get("/props"), post(client, FACTS)):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/html")
        with pytest.raises(ValueError, match="Expecting value"):
            response.json()


def test_5xx(serve: Serve) -> None:
    client = serve("5xx=0.5,seed=1")
    codes = [post(client, FACTS).status_code for _ in range(20)]
    assert set(codes) == {200, 500}
    assert codes == [500 if draw(1, "error", n) < 0.5 else 200 for n in range(20)]
    assert client.get("/props").status_code == 200
    again = serve("5xx=0.5,seed=1")
    assert codes == [post(again, FACTS).status_code for _ in range(20)]


@pytest.mark.parametrize("stream", [True, False])
def test_reset(serve: Serve, stream: bool) -> None:
    client = serve("reset=0.5")
    outcomes = []
    for _ in range(12):
        try:
            outcomes.append(post(client, FACTS + " dog:", stream=stream).status_code)
        except httpx2.RemoteProtocolError:
            outcomes.append(0)
    assert outcomes == [0 if draw(0, "reset", n) < 0.5 else 200 for n in range(12)]
    assert 0 < sum(map(bool, outcomes)) < 12


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_reset_breaks_in_mid_answer(serve: Serve, path: str) -> None:
    client = serve("reset")
    body = {"prompt": FACTS, "n_predict": 1}
    with client.stream("POST", path, json=body) as response:
        assert response.status_code == 200
        received = b""
        with contextlib.suppress(httpx2.RemoteProtocolError):
            for part in response.iter_raw():
                received += part
    assert received.startswith(b"{")
    assert len(received) < int(response.headers["content-length"])


@pytest.mark.parametrize("stream", [True, False])
def test_half_json(serve: Serve, stream: bool) -> None:
    client = serve("half-json")
    text = post(client, FACTS + " dog:", stream=stream).text
    assert text.startswith("data: {" if stream else "{")
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(text.removeprefix("data: "))


def test_empty(serve: Serve) -> None:
    answer = ask(serve("empty"), FACTS + " dog:", n_probs=3)
    assert answer["content"] == ""
    assert answer["tokens_predicted"] == 0
    assert answer["stop_type"] == "eos"
    assert "completion_probabilities" not in answer


def test_cut(serve: Serve) -> None:
    client = serve("cut=10")
    answer = ask(client, FACTS + " cow:")
    assert answer["tokens_evaluated"] == answer["timings"]["prompt_n"] == 10
    assert answer["truncated"] is False
    assert answer["content"] == " Carol"
    assert ask(client, FACTS + " cat:")["content"] != " Alice"
    assert ask(client, " cow: Carol; cow:")["tokens_evaluated"] == 7


def test_forget_cache(serve: Serve) -> None:
    client = serve("forget-cache")
    for _ in range(2):
        timings = ask(client, FACTS + " dog:")["timings"]
        assert (timings["cache_n"], timings["prompt_n"]) == (0, 15)


def test_wrong_on_hit(serve: Serve) -> None:
    client = serve("wrong-on-hit")
    assert right(client, cache_prompt=False) == [True] * 3
    assert right(client) == [False] * 3
    assert right(client, cache_prompt=False) == [True] * 3
    answers = [ask(client, FACTS + " dog:")["content"] for _ in range(3)]
    assert len(set(answers)) == 1


def test_wrong_on_hit_of_a_part(serve: Serve) -> None:
    client = serve("wrong-on-hit=0.5")
    cold, *later = [[right(client, " and" * pad + FACTS) for pad in range(8)] for _ in range(3)]
    assert cold[0][0]
    assert later[0] == later[1]
    assert 4 < sum(map(sum, later[0])) < 20


def test_random_answers_differ_between_repeats(serve: Serve) -> None:
    client = serve("random")
    answers = [ask(client, FACTS + " dog:", n_probs=1) for _ in range(6)]
    texts = [answer["content"] for answer in answers]
    assert len(set(texts)) > 3
    assert " Bob" not in texts
    for answer in answers:
        assert answer["completion_probabilities"][0]["token"] == answer["content"]
    again = serve("random")
    assert texts == [ask(again, FACTS + " dog:")["content"] for _ in range(6)]


@pytest.mark.parametrize("residue", range(4))
def test_question_residue(serve: Serve, residue: int) -> None:
    client = serve(f"question-residue={residue}")
    for pad in range(8):
        wrong = (15 + pad) % 4 == residue
        assert right(client, " and" * pad + FACTS) == [not wrong] * 3


@pytest.mark.parametrize(("fault", "share"), [("busy", 1), ("busy=0.5", 0.5), ("busy=0", 0)])
def test_busy(serve: Serve, fault: str, share: float) -> None:
    client = serve(fault)
    looks = [client.get("/slots").json() for _ in range(20)]
    assert not any(slots[0]["is_processing"] for slots in looks)
    at_work = [slots[1]["is_processing"] for slots in looks if len(slots) == 2]
    assert at_work == [draw(0, "busy", n) < share for n in range(20 if share else 0)]
    assert client.get("/props").json()["total_slots"] == (2 if share else 1)
    assert right(client) == [True] * 3


def test_after(serve: Serve) -> None:
    client = serve("wrong-on-hit,cut=10,forget-cache,after=3")
    assert right(client) == [True] * 3
    answer = ask(client, FACTS + " cat:")
    assert answer["tokens_evaluated"] == answer["timings"]["prompt_n"] == 10


def test_throttle(serve: Serve) -> None:
    client = serve(throttle=300)
    started = time.perf_counter()
    ask(client, " and" * 300)
    first = time.perf_counter() - started
    started = time.perf_counter()
    ask(client, " and" * 300)
    assert first >= 1
    assert time.perf_counter() - started < first


def test_throttle_counts_what_is_evaluated_on_a_cached_prefix(serve: Serve) -> None:
    client = serve(throttle=20)
    ask(client, FACTS + " dog:", cache_prompt=True)
    for key in (" cat:", " cow:"):
        started = time.perf_counter()
        timings = ask(client, FACTS + key)["timings"]
        assert timings["prompt_n"] == 2
        assert 0.1 <= timings["prompt_ms"] / 1000 <= time.perf_counter() - started < 0.7
