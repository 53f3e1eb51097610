"""A user's prompts on a real tokenizer and inside a real chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvphase.runs.check import run_sync
from kvphase.runs.shift_plan import Options, plan_shift
from kvphase.runs.shift_source import Wanted, read_sources
from kvphase.runtimes.detect import open_runtime

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.probes.shift import ShiftPlan

pytestmark = pytest.mark.real

PROSE = (
    "# Notes\n\nThe house stands on a hill.\n\n{{mark}}The cellar's number is 7.{{/mark}}\n\n"
    "There is a well in the garden.\n\nThe cellar's number is"
)
CODE = (
    "import os\n\n# how many bits\n# a scale has\nBITS = {{mark}}8{{/mark}}\n\n"
    "def main():\n    pass\n\nassert BITS =="
)
CHINESE = (
    "这是一份说明。\n\n{{mark}}地下室的编号是七。{{/mark}}\n\n花园里有一口井。\n\n地下室的编号是"
)
CHAT = (
    '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "%s"}]}'
)


async def planned(address: str, path: str, wanted: Wanted, *, full: bool) -> ShiftPlan:
    async with open_runtime(address) as runtime:
        return await plan_shift(runtime, read_sources(path, wanted), Options(full=full))


@pytest.mark.parametrize(
    ("name", "text", "families"),
    [
        ("prose.md", PROSE, {"neutral", "equals", "polite", "blank"}),
        ("crlf.txt", PROSE.replace("\n", "\r\n"), {"neutral"}),
        ("code.txt", CODE, {"equals"}),
        ("chinese.txt", CHINESE, {"neutral"}),
        ("chat.json", CHAT % PROSE.replace("\n", "\\n"), {"neutral"}),
    ],
)
def test_everything_behind_the_filler_is_the_same_tokens(
    smollm2: str, tmp_path: Path, name: str, text: str, families: set[str]
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    plan = run_sync(planned(smollm2, str(tmp_path / name), Wanted(), full=True))
    (task,) = plan.tasks
    assert families <= {sweep.family for sweep in task.sweeps}
    base = task.plain
    for sweep in task.sweeps:
        for pad, placed in enumerate(sweep.shifted, 8):
            assert len(placed.ids) == len(base.ids) + pad
            assert placed.target == base.target + pad
            assert placed.ids[placed.target :] == base.ids[base.target :]
    assert task.tail is not None
    for placed in task.tail.shifted:
        assert placed.target == base.target
        assert placed.ids[: base.target + 3] == base.ids[: base.target + 3]
        assert placed.ids[placed.question :] == base.ids[base.question :]
