"""The flip's written prompts on a real tokenizer."""

from __future__ import annotations

import pytest

from kvphase.probes.flip import SHIFTS
from kvphase.runs.check import run_sync
from kvphase.runs.flips import plan_flip
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey

pytestmark = pytest.mark.real


async def placed(address: str) -> None:
    async with open_runtime(address) as runtime:
        vocab = await survey(runtime.tokenize)
        plan = await plan_flip(runtime, vocab, seed=1)
        assert not plan.own_words
        kinds = {prompt.kind for prompt in plan.prompts}
        assert {"code", "configuration", "arithmetic"} <= kinds
        for prompt in plan.prompts:
            first = prompt.shifted[0]
            for shift in range(SHIFTS):
                head, tail = prompt.shifted[shift], prompt.tail[shift]
                assert len(head.ids) == len(tail.ids) == len(first.ids) + shift
                assert head.target == first.target + shift
                assert tail.target == first.target
                assert head.question == tail.question == first.question + shift
                # The fact is the same token wherever it stands, far from the question.
                assert head.ids[head.target] == first.ids[first.target]
                assert head.question - head.target > 128


def test_written_prompts_move_by_exactly_one_token(smollm2: str) -> None:
    run_sync(placed(smollm2))
