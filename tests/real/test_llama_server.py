"""Prompts, cache and answers at a real llama-server with a real model."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey, verify
from kvphase.types import Arm, Ask, Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Reply, Runtime, Vocab

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOKENS = 2000
RECORDS = 24
DEMONSTRATIONS = 4
NEAR_TIE = 0.5
"""Log-probability between the two best tokens below which arithmetic may decide."""


def compose(vocab: Vocab, bos: Sequence[int]) -> tuple[tuple[int, ...], list[Ask]]:
    """A prefix of `TOKENS` with `RECORDS` records between fillers, and its questions."""
    records = list(zip(vocab.keys[:RECORDS], vocab.values[7:], strict=False))
    fillers = [word.id for phrase in vocab.phrases * 20 for word in phrase]
    gap = (TOKENS - len(bos) - 4 * (RECORDS + DEMONSTRATIONS)) // RECORDS
    ids, targets = list(bos), []
    for i, (key, value) in enumerate(records):
        ids += fillers[i * gap : (i + 1) * gap]
        targets.append(len(ids))
        ids += [key.id, vocab.separator.id, value.id, vocab.terminator.id]
    ids += fillers[: TOKENS - 4 * DEMONSTRATIONS - len(ids)]
    for key, value in records[:DEMONSTRATIONS]:
        ids += [key.id, vocab.separator.id, value.id, vocab.terminator.id]
    asks = [
        Ask(
            id=str(i),
            prefix=tuple(ids),
            suffix=(key.id, vocab.separator.id),
            target=targets[i],
            expected=value.text,
            candidates=(value.text,),
            arm=Arm.SCREEN,
            item=i,
            block=0,
            context=0,
            pad=0,
        )
        for i, (key, value) in enumerate(records)
    ]
    return tuple(ids), asks[DEMONSTRATIONS:]


def test_survey_finds_enough_words_in_seconds(smollm2: str) -> None:
    async def main() -> tuple[Vocab, float]:
        async with open_runtime(smollm2) as runtime:
            started = time.perf_counter()
            vocab = await survey(runtime.tokenize)
            return vocab, time.perf_counter() - started

    vocab, seconds = asyncio.run(main())
    assert len(vocab.keys) >= 264
    assert len(vocab.values) >= 200
    assert len(vocab.phrases) >= 20
    assert seconds < 30  # well below one on an idle machine


def test_the_prefix_is_prefilled_once_and_questions_cost_themselves(smollm2: str) -> None:
    async def main() -> tuple[list[Reply], list[Reply], list[Ask]]:
        async with open_runtime(smollm2) as runtime:
            vocab = await survey(runtime.tokenize)
            _, asks = compose(vocab, runtime.limits.bos)
            await verify(runtime, vocab, Template(), [ask.prompt for ask in asks])
            replies = [await runtime.complete(ask) for ask in asks]
            return replies, [await cold(runtime, ask) for ask in asks[:2]], asks

    replies, cold_replies, asks = asyncio.run(main())
    assert replies[0].prefilled == TOKENS + 4 + 2
    assert all(reply.prefilled == 2 for reply in replies[1:])
    assert all(reply.cached == TOKENS for reply in replies)
    assert all((reply.prefilled, reply.cached) == (TOKENS + 2, 0) for reply in cold_replies)
    assert sum(reply.text == ask.expected for reply, ask in zip(replies, asks, strict=True)) >= 1
    for warm, alone in zip(replies, cold_replies, strict=False):
        assert warm.text == alone.text or min(warm.margin or 0, alone.margin or 0) < NEAR_TIE
        assert warm.logprob is not None


async def cold(runtime: Runtime, ask: Ask) -> Reply:
    """The same question with a prefill of its own."""
    return await runtime.complete(replace(ask, arm=Arm.COLD))


def test_chat_template_is_the_servers_and_prompts_in_it_are_exact(smollm2: str) -> None:
    async def main() -> None:
        async with open_runtime(smollm2) as runtime:
            vocab = await survey(runtime.tokenize)
            template = await runtime.template()
            assert "<|im_start|>" in template.head_text
            assert template.tail_text.endswith("assistant\n")
            prefix, asks = compose(vocab, ())
            prompt = (*template.head, *prefix, *asks[0].suffix, *template.tail)
            await verify(runtime, vocab, template, [(*runtime.limits.bos, *prompt)])

    asyncio.run(main())


def test_server_says_what_it_is(smollm2: str) -> None:
    async def main() -> None:
        async with open_runtime(smollm2.removeprefix("http://")) as runtime:
            assert runtime.about.model == "SmolLM2-135M-Instruct.Q4_1.gguf"
            assert runtime.about.quant == "Q4_1"
            assert runtime.limits.context_tokens == 4096
            assert not runtime.about.toy

    asyncio.run(main())


def test_prompt_longer_than_the_context_is_refused_by_the_server(smollm2: str) -> None:
    async def main() -> None:
        async with open_runtime(smollm2) as runtime:
            long = Ask("x", (5,) * 5000, (6,), 0, " a", (" a",), Arm.SCREEN, 0, 0, 0, 0)
            await runtime.complete(long)

    with pytest.raises(RuntimeFault, match=r"HTTP 400.*context size") as caught:
        asyncio.run(main())
    assert not isinstance(caught.value, TransientFault)
