"""Our own loop against a double that answers at once: questions a second, memory, growth.

Each size runs in a process of its own (``python benchmarks/speed_loop.py N`` prints its figures as
JSON), so that the peak of its memory is its own. What is timed is a whole needle run, from
composing the prompts to the verdict; asking (composing, storing, reading back) is told apart.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rows import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Ask, Reply

SIZES, SMALL_SIZES = (1_000, 10_000, 100_000), (1_000, 5_000)
RECORDS = 200
SLOWDOWN = 1.25
"""Largest seconds a question of the largest size over those of the smallest: linear time."""
GROWTH_MB_PER_1000 = 1.0
"""Memory that may be added for each thousand questions: their columns, and nothing else."""


@dataclass
class Instant:
    """Answers at once: right seven times in ten."""

    about: Any
    limits: Any
    traffic: int | None = None
    seconds: float = 0.0
    dice: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311

    async def tokenize(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """Not used with a prepared vocabulary."""
        return [[] for _ in texts]

    async def template(self) -> Any:  # noqa: ANN401 - imported late
        """None."""
        from kvphase.types import Template

        return Template()

    async def complete(self, ask: Ask) -> Reply:
        """The right answer or another."""
        from kvphase.types import Reply

        started = time.perf_counter()
        text = ask.expected if self.dice.random() < 0.7 else " other"
        reply = Reply(text, logprob=-0.5, margin=1.0, prefilled=2, cached=100, generated=1)
        self.seconds += time.perf_counter() - started
        return reply


def one(questions: int) -> dict[str, Any]:
    """Run one size in this process."""
    from kvphase.probes.design import NeedleDesign, needed, replace
    from kvphase.probes.needle import needle, plan_needle
    from kvphase.runs.execute import execute
    from kvphase.runs.store import Store
    from kvphase.types import About, Limits, Vocab, Word

    ids = iter(range(1, 10_000))
    words = [Word(number, f" w{number}") for number in ids]
    vocab = Vocab(
        keys=tuple(words[:400]),
        values=tuple(words[400:500]),
        phrases=(tuple(words[500:600]),),
        separator=words[600],
        terminator=words[601],
        digest="made up",
    )
    limits = Limits(1 << 20, local_window=16, bos=(0,))
    design = NeedleDesign(
        "insequence", 0, RECORDS, -(-questions // RECORDS), window=16, repeats=0, cold=0, alone=0
    )
    design = replace(design, context_tokens=needed(design, 1, 0))
    runtime = Instant(About("double", "double"), limits)
    before, peak = _peak(), [0.0]
    clock = time.process_time()
    plan = plan_needle(vocab, limits, design, 1)
    planned = time.process_time()
    seen: list[float] = []

    def note(_: object) -> None:
        if not len(seen) % 100:
            peak[-1] = _peak()
        seen.append(time.process_time())

    with (
        tempfile.TemporaryDirectory() as folder,
        Store.create(Path(folder) / "a.kvphase", {}) as store,
    ):
        asyncio.run(execute(needle(plan), runtime, store, observe=note))
    ended = time.process_time()
    return {
        "questions": design.screen,
        "planning_s": planned - clock,
        "asking_s": seen[-1] - planned,
        "verdict_s": ended - seen[-1],
        "before_mb": before / 1024,
        "asking_mb": peak[-1] / 1024,
        "peak_mb": _peak() / 1024,
    }


def _peak() -> float:
    """Largest memory of this process so far, kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def figures(*, small: bool) -> list[dict[str, Any]]:
    """All sizes."""
    found = []
    for size in SMALL_SIZES if small else SIZES:
        command = [sys.executable, __file__, str(size)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        found.append(json.loads(ended.stdout))
    return found


def rows(found: list[dict[str, Any]]) -> list[Row]:
    """Questions a second, then growth of time and of memory."""
    made = [
        Row(
            "loop",
            f"{f['questions']:,} questions, a double that answers at once",
            f"{f['questions'] / f['asking_s']:,.0f} a processor second; plan {f['planning_s']:.1f} "
            f"s, verdict {f['verdict_s']:.1f} s; {f['asking_mb']:.0f} MB asking, "
            f"{f['peak_mb']:.0f} MB in all",
            data=f,
        )
        for f in found
    ]
    least, most = found[0], found[-1]
    slower = (most["asking_s"] / most["questions"]) / (least["asking_s"] / least["questions"])
    more = (most["questions"] - least["questions"]) / 1000
    grown = {name: (most[name] - least[name]) / more for name in ("asking_mb", "peak_mb")}
    what = f"{most['questions']:,} against {least['questions']:,} questions"
    return [
        *made,
        Row(
            "loop",
            f"{what}: seconds a question",
            f"{slower:.2f} times",
            f"<= {SLOWDOWN}",
            slower <= SLOWDOWN,
        ),
        Row(
            "loop",
            f"{what}: memory while asking",
            f"{grown['asking_mb']:.2f} MB a thousand questions; {grown['peak_mb']:.2f} in all",
            f"<= {GROWTH_MB_PER_1000}",
            grown["asking_mb"] <= GROWTH_MB_PER_1000,
        ),
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(one(int(sys.argv[1]))) + "\n")
