"""The llama-server runtime against the served toy: the answers are those of the toy in process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx2
import pytest

from kvphase.errors import UsageError
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
            candidates=(name,),
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
    screened = [reply for ask, reply in zip(questions, there, strict=True) if ask.arm != Arm.COLD]
    assert [reply.cached for reply in screened] == [16] * 3 + [53] * 3
    assert [reply.prefilled for reply in screened[1:3] + screened[4:]] == [2] * 4
