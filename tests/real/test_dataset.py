"""Files of prompts on a real tokenizer and inside a real chat template."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvphase.probes.formats import read_dataset
from kvphase.probes.residues import residues
from kvphase.runs.budget import Budget
from kvphase.runs.check import run_sync
from kvphase.runs.dataset import Options, run_dataset
from kvphase.runs.dataset_place import Survey, shifted, shifts_of, survey
from kvphase.runtimes.detect import open_runtime

if TYPE_CHECKING:
    from kvphase.probes.dataset import Prompt

pytestmark = pytest.mark.real
DATA = Path(__file__).parents[1] / "files" / "data"
SHIFTS = shifts_of(4)


async def placed(address: str, name: str, *, chat: bool) -> tuple[Survey, list[Prompt]]:
    async with open_runtime(address) as runtime:
        found = await survey(runtime, read_dataset(DATA / name), 0, SHIFTS, chat=chat)
        made: list[Prompt] = []
        for one in found.located[:2]:
            head = await shifted(runtime, one, SHIFTS, 0)
            tail = await shifted(runtime, one, SHIFTS, 0, tail=True)
            assert head is not None
            assert tail is not None
            made += [head, tail]
        return found, made


@pytest.mark.parametrize(
    ("name", "chat"),
    [
        ("lookup.jsonl.gz", False),
        ("json_kv.jsonl", True),
        ("niah.jsonl", False),
        ("essays.json", True),
        ("passkey.txt", False),
        ("story.txt", False),
        ("chats.jsonl", False),
    ],
)
def test_every_fact_moves_with_its_prompt_and_by_whole_tokens(
    smollm2: str, name: str, chat: bool
) -> None:
    found, made = run_sync(placed(smollm2, name, chat=chat))
    assert not found.unusable
    assert residues(found.positions).n == len(found.positions)
    for head, tail in zip(made[::2], made[1::2], strict=True):
        for pad, one in enumerate(head.shifted, 8):
            assert len(one.ids) == len(head.ids) + pad
            for fact in head.facts:
                assert one.ids[fact.target + pad :] == head.ids[fact.target :]
        for one in tail.tail:
            last = max(fact.target for fact in tail.facts)
            assert one.ids[: last + 1] == tail.ids[: last + 1]


def test_a_file_is_measured_on_a_real_server(smollm2: str, tmp_path: Path) -> None:
    dataset = read_dataset(DATA / "chats.jsonl")
    short = tuple(replace(item, tokens=1) for item in dataset.items)
    run = run_dataset(
        replace(dataset, items=short),
        smollm2,
        Options(modulus=4, questions=8),
        out=tmp_path / "a.kvphase",
        budget=Budget(),
    )
    assert not run.partial
    held = run.manifest["dataset"]
    assert (held["spread"], held["at"]) == ("locked", [8, 1, 8])
    assert run.rung.stage.design["prompts"] == 1
    assert run.totals["asked"] in (9, 17)
