"""The llama-server runtime against the served toy: the answers are those of the toy in process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

import httpx2
import pytest

from kvphase.errors import UsageError
from kvphase.runtimes import llamacpp_slots
from kvphase.runtimes.detect import recognise
from kvphase.runtimes.http import new_client
from kvphase.runtimes.llamacpp import LlamaCpp
from kvphase.runtimes.toy import ToyEngine, ToyRuntime
from kvphase.types import Arm, Ask, Reply

FACTS = " cat: Alice; dog: Bob; cow: Carol;"
RIGHT = {" cat": " Alice", " dog": " Bob", " cow": " Carol"}

Serve = Callable[..., httpx2.Client]


def asks(engine: ToyEngine) -> list[Ask]:
    """Two contexts, three questions each, all of them cold as well."""
    bos, encode = engine.words.bos, engine.words.encode
    return [
        Ask(
            id=f"{pad} {key} {arm}",
            prefix=(bos, *encode(" and" * pad + FACTS)),
            suffix=tuple(encode(f"{key}:")),
            target=1 + pad,
            expected=name,
            candidates=(name, " Dave"),
            arm=arm,
            item=0,
            block=0,
            context=pad,
            pad=pad,
        )
        for pad in (3, 40)
        for arm in (Arm.SCREEN, Arm.COLD)
        for key, name in RIGHT.items()
    ]


async def over_http(address: str, questions: list[Ask]) -> list[Reply]:
    async with new_client(address) as client:
        runtime = await LlamaCpp.connect(client)
        assert runtime.about.toy
        assert (runtime.limits.bos, runtime.limits.local_window) == ((0,), 16)
        with pytest.raises(UsageError, match="no chat template"):
            await runtime.template()
        return [await runtime.complete(question) for question in questions]


async def in_process(engine: ToyEngine, questions: list[Ask]) -> list[Reply]:
    async with ToyRuntime(engine) as runtime:
        return [await runtime.complete(question) for question in questions]


def test_answer_by_answer(serve: Serve, engine: ToyEngine) -> None:
    questions = asks(engine)
    here = asyncio.run(in_process(engine, questions))
    there = asyncio.run(over_http(str(serve().base_url), questions))
    assert [reply.text for reply in there] == [question.expected for question in questions]
    for one, other in zip(here, there, strict=True):
        assert (one.text, one.logprob, one.generated) == (
            other.text,
            other.logprob,
            other.generated,
        )
        assert one.margin == pytest.approx(other.margin, abs=1e-12)
        assert one.against == pytest.approx(other.against, abs=1e-12) or other.against == -math.inf
    screened = [reply for ask, reply in zip(questions, there, strict=True) if ask.arm != Arm.COLD]
    assert [reply.cached for reply in screened] == [16] * 3 + [53] * 3
    assert [reply.prefilled for reply in screened[1:3] + screened[4:]] == [2] * 4


ALLOWED = {"GET /health", "GET /props", "GET /v1/models", "GET /slots"}
ALLOWED |= {"POST /tokenize", "POST /apply-template", "POST /completion"}


class Recorder(httpx2.AsyncHTTPTransport):
    """Notes what is asked of a real server."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Note the request and send it."""
        self.calls.append(f"{request.method} {request.url.path}")
        return await super().handle_async_request(request)


async def traffic(address: str, questions: list[Ask]) -> tuple[int | None, int, list[str]]:
    recorder = Recorder()
    async with new_client(address, recorder) as client:
        await recognise(client)
        runtime = await LlamaCpp.connect(client)
        for question in questions:
            assert (await runtime.complete(question)).text == question.expected
        return runtime.traffic, runtime.lost_prefix, recorder.calls


def test_server_is_asked_only_what_changes_nothing_of_others(
    serve: Serve, engine: ToyEngine
) -> None:
    greedy = [arm for arm in Arm if arm is not Arm.SAMPLED]
    questions = [replace(question, arm=arm) for arm in greedy for question in asks(engine)[:2]]
    whole = [replace(one, prefix=(), suffix=one.prompt) for one in questions[:2]]
    seen, lost, calls = asyncio.run(traffic(str(serve().base_url), questions + whole))
    assert (seen, lost) == (0, 0)
    assert set(calls) <= ALLOWED


def test_another_client_is_noticed_and_waited_for(
    serve: Serve, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp_slots, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(llamacpp_slots, "QUIET_PAUSE", 0.05)
    alone = [replace(question, arm=Arm.ALONE) for question in asks(engine)[:3]]
    # One look on connecting and one before the prefix; the asks wait in vain, each counts once.
    seen, _, calls = asyncio.run(traffic(str(serve("busy").base_url), alone))
    assert seen == 1 + 1 + 3
    assert calls.count("GET /slots") > 3 * 3
    seen, _, _ = asyncio.run(traffic(str(serve("busy=0.3").base_url), alone))
    assert seen is not None
    assert seen < 1 + 1 + 3


def test_server_that_forgets_is_no_traffic(serve: Serve, engine: ToyEngine) -> None:
    address = str(serve("forget-cache").base_url)
    assert asyncio.run(traffic(address, asks(engine)[:3]))[:2] == (0, 3)
