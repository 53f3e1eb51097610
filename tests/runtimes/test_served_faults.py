"""What goes wrong between a server and a run: what may be asked again, and what stops it."""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runtimes import served
from kvphase.runtimes.http import HOST_KEYS, KEY_VARIABLE, Busy, Unreachable
from kvphase.types import Arm
from runtimes.speakers import Local, Speaker, complete, opened, use
from runtimes.speakers import question as q

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kvphase.types import Reply, Runtime

    Fault = Callable[[dict[str, Any]], httpx2.Response]

KINDS = ("vllm", "sglang", "completions")
JSON = {"content-type": "application/json"}


def reset(_: dict[str, Any]) -> httpx2.Response:
    raise httpx2.ReadError("reset by peer some.host.example")


def refused(_: dict[str, Any]) -> httpx2.Response:
    raise httpx2.ConnectError("connection refused to some.host.example")


def silent(_: dict[str, Any]) -> httpx2.Response:
    raise httpx2.ReadTimeout("no byte for a while")


def half(said: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, text=json.dumps(said)[:40], headers=JSON)


def breaks_off(said: dict[str, Any]) -> httpx2.Response:
    async def body() -> AsyncIterator[bytes]:
        yield json.dumps(said)[:40].encode()
        raise httpx2.RemoteProtocolError("peer closed")

    return httpx2.Response(200, content=body(), headers=JSON)


def failed(_: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(500, json={"error": {"message": "CUDA error"}})


def nothing(_: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json={"model": "tiny", "choices": [], "usage": {}})


def busy(headers: dict[str, str], status: int = 429) -> Fault:
    body = {"error": {"message": "slow down"}}
    return lambda _: httpx2.Response(status, json=body, headers=headers)


PASSING: list[tuple[Fault, str]] = [
    (reset, "connection broke"),
    (silent, "fell silent"),
    (half, "torn"),
    (breaks_off, "connection broke"),
    (failed, "CUDA error"),
]
LASTING: list[tuple[Fault, str]] = [
    (lambda _: httpx2.Response(400, json={"error": {"message": "too long"}}), "too long"),
    (lambda _: httpx2.Response(402, json={"error": {"message": "no credit"}}), "no credit"),
    (lambda _: httpx2.Response(401, json={"error": {"message": "who?"}}), KEY_VARIABLE),
    (lambda _: httpx2.Response(200, text="<html>"), "HTML"),
    (lambda _: httpx2.Response(200, text="OK"), "not JSON"),
    (lambda _: httpx2.Response(200, json={"choices": 3, "text": 3}), "missing or odd"),
]


def failing(kind: str, fault: Fault, *places: int) -> Speaker:
    """A server that goes wrong at these questions, counted from the first after it was opened."""
    trials = Speaker(kind)
    opened(trials)
    first = len(trials.bodies)

    def answer(at: int, said: dict[str, Any]) -> httpx2.Response:
        return fault(said) if at - first in places else httpx2.Response(200, json=said)

    return Speaker(kind, answer=answer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fault", "says"), PASSING)
def test_a_question_that_failed_may_be_asked_again(kind: str, fault: Fault, says: str) -> None:
    async def job(runtime: Runtime) -> Reply:
        await runtime.complete(q(0))
        await runtime.complete(q(1))
        with pytest.raises(TransientFault, match=says) as caught:
            await runtime.complete(q(2))
        assert "example" not in str(caught.value)
        return await runtime.complete(q(2))

    assert use(failing(kind, fault, 2), job).text == " Alice"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arm", [Arm.SCREEN, Arm.COLD])
@pytest.mark.parametrize(("fault", "says"), PASSING)
def test_a_prefill_that_failed_is_final(kind: str, fault: Fault, says: str, arm: Arm) -> None:
    with pytest.raises(RuntimeFault, match=f"{says}.*prefill") as caught:
        complete(failing(kind, fault, 0), q(0, arm=arm))
    assert not isinstance(caught.value, TransientFault)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fault", "says"), LASTING)
def test_a_refusal_is_final_and_says_why(kind: str, fault: Fault, says: str) -> None:
    with pytest.raises(RuntimeFault, match=says) as caught:
        complete(failing(kind, fault, 2), q(0), q(1), q(2))
    assert not isinstance(caught.value, TransientFault)
    assert "\n" not in str(caught.value)


def test_an_answer_with_nothing_in_it_is_torn() -> None:
    with pytest.raises(TransientFault, match="stops before its end"):
        complete(failing("vllm", nothing, 2), q(0), q(1), q(2))


@pytest.mark.parametrize("arm", [Arm.SCREEN, Arm.COLD])
@pytest.mark.parametrize(
    ("fault", "wait"),
    [
        (busy({"retry-after": "7"}), 7.0),
        (busy({"retry-after": "0.5"}), 0.5),
        (busy({}), None),
        (busy({"retry-after": "soon"}), None),
        (busy({"retry-after": "-3"}), 0.0),
        (busy({"retry-after": "nan"}), None),
        (busy({"retry-after": "9"}, 503), 9.0),
    ],
)
def test_a_busy_server_says_how_long_it_wants(fault: Fault, wait: float | None, arm: Arm) -> None:
    with pytest.raises(Busy, match="slow down") as caught:
        complete(failing("vllm", fault, 0), q(0, arm=arm))
    assert caught.value.wait == wait
    assert caught.value.untouched


def test_a_date_to_wait_for_becomes_seconds() -> None:
    later = busy({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    with pytest.raises(Busy) as caught:
        complete(failing("vllm", later, 0), q(0))
    assert caught.value.wait is not None
    assert 25 < caught.value.wait <= 30
    past = busy({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    with pytest.raises(Busy) as caught:
        complete(failing("vllm", past, 0), q(0))
    assert caught.value.wait == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_was_started_again_goes_on_with_the_same_model(kind: str) -> None:
    server = failing(kind, refused, 1)

    async def job(runtime: Runtime) -> list[Reply]:
        first = await runtime.complete(q(0))
        with pytest.raises(Unreachable):
            await runtime.complete(q(1))
        server.kept.clear()
        return [first, await runtime.complete(q(1)), await runtime.complete(q(2))]

    replies = use(server, job)
    size = len(q().prompt)
    assert [reply.cached for reply in replies] == [0, 0, size // 16 * 16]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_was_started_again_with_another_model_stops_the_run(kind: str) -> None:
    server = failing(kind, refused, 1)

    async def job(runtime: Runtime) -> None:
        await runtime.complete(q(0))
        with pytest.raises(Unreachable):
            await runtime.complete(q(1))
        server.models = ("other",)
        await runtime.complete(q(1))

    with pytest.raises(RuntimeFault, match="another model: other instead of tiny") as caught:
        use(server, job)
    assert not isinstance(caught.value, TransientFault)
    sent = [body.get("prompt", body.get("input_ids")) for body in server.bodies]
    assert sent.count(list(q(1).prompt)) == 1  # the other model was not asked


def test_a_question_that_takes_too_long_may_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "ANSWER_SECONDS", 0.3)

    def slow(said: dict[str, Any]) -> httpx2.Response:
        async def body() -> AsyncIterator[bytes]:
            await asyncio.sleep(5)
            yield json.dumps(said).encode()

        return httpx2.Response(200, content=body(), headers=JSON)

    with pytest.raises(TransientFault, match="had not finished"):
        complete(failing("vllm", slow, 2), q(0), q(1), q(2))


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_as_events_is_read_as_well(kind: str) -> None:
    def streamed(said: dict[str, Any]) -> httpx2.Response:
        pieces = [said]
        if "choices" in said:
            (choice,) = said["choices"]
            parts = [
                {**choice, "text": " Al", "finish_reason": None},
                {**choice, "text": "ice", "logprobs": None},
            ]
            pieces = [{**said, "choices": [part], "usage": None} for part in parts]
            pieces.append({**said, "choices": []})
        text = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
        return httpx2.Response(200, text=text, headers={"content-type": "text/event-stream"})

    replies = complete(failing(kind, streamed, 0, 1), q(0), q(1))
    assert [(r.text, r.logprob) for r in replies] == [(" Alice", -0.25)] * 2
    assert replies[1].cached == len(q().prompt) // 16 * 16


def test_a_prefix_that_is_never_found_is_counted() -> None:
    async def job(runtime: Any) -> int:  # noqa: ANN401
        for number in range(5):
            await runtime.complete(q(number))
        lost: int = runtime.lost_prefix
        return lost

    assert use(Speaker("sglang", block=10_000), job) == 4  # the first is expected to miss
    # One that tells of hits alone has none to tell of, and these are too brief to tell by time.
    assert use(Speaker("vllm", block=10_000), job) == 0
    assert use(Speaker("vllm"), job) == 0


KEY = "sk-" + "x" * 20


@pytest.mark.parametrize(
    ("address", "variable", "sent"),
    [
        ("http://127.0.0.1:8000", KEY_VARIABLE, True),
        ("https://api.deepseek.com", KEY_VARIABLE, True),
        ("https://api.deepseek.com", "DEEPSEEK_API_KEY", True),
        ("http://api.deepseek.com", "DEEPSEEK_API_KEY", False),
        ("https://api.deepseek.com.example.org", "DEEPSEEK_API_KEY", False),
        ("http://127.0.0.1:8000", "OPENAI_API_KEY", False),
        ("https://api.openai.com", "DEEPSEEK_API_KEY", False),
    ],
)
def test_a_providers_key_goes_to_that_provider_alone(
    address: str, variable: str, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (KEY_VARIABLE, *HOST_KEYS.values()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, KEY)
    server = Speaker("vllm")

    async def job(_: Runtime) -> None:
        return None

    use(server, job, Local(), address)
    assert [headers.get("authorization") for headers in server.headers] == [
        f"Bearer {KEY}" if sent else None
    ] * len(server.headers)


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)

    def told(_: dict[str, Any]) -> httpx2.Response:
        return httpx2.Response(403, json={"error": {"message": f"bad key {KEY}"}})

    with pytest.raises(RuntimeFault) as caught:
        complete(failing("vllm", told, 0), q(0))
    assert KEY not in str(caught.value)
