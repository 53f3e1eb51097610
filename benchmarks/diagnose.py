"""How often a diagnosis finds the causes that are there, and no other one.

Each scenario is a served model whose truth is known: it answers a record's value or another one,
decided by the record and, where phase is part of the truth, by the residue of its position. On top
come the test double's faults. The client is the one for llama-server, the server the double of
``kvphase serve`` in the same process: over HTTP with ``--http``, without it request by request with
nothing in between, which is several times as fast and finds the same.

    python benchmarks/diagnose.py --seeds 100 --out benchmarks/results/diagnose.json

Right is a diagnosis whose found causes are exactly those of the scenario. The bound is
Clopper and Pearson's lower 95% limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
from scipy import stats

from kvphase.causes.session import Options, Watching, diagnose_runtime
from kvphase.runs.budget import Budget, Meter
from kvphase.runtimes import llamacpp_wire as wire
from kvphase.runtimes.llamacpp import LlamaCpp
from kvphase.runtimes.scores import Score
from kvphase.runtimes.toy import ToyEngine, ToyWords
from kvphase.serve.app import build_app
from kvphase.serve.faults import Faults, draw
from kvphase.serve.job import Desk, Job
from kvphase.serve.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEVEL = 0.75
"""Accuracy where phase does not matter."""
WEAK, GAP = 2, 0.45
"""Residue modulo 4 at which records are found less often where it does, and by how much."""
CONTEXTS = 80
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - no file outlives this


@dataclass
class Memory:
    """The cache of `Known`: the tokens so far."""

    ids: tuple[int, ...] = ()
    length: int = 0

    def fork(self) -> Memory:
        """Return a cache that grows on its own."""
        return Memory(self.ids, self.length)


@dataclass
class Known:
    """Answers a record's key with its value, or with another one: whether, is known beforehand."""

    words: ToyWords
    phase: bool
    seed: int
    config: dict[str, Any] = field(default_factory=lambda: {"context_tokens": 4096})
    local_window: int = 0

    def __post_init__(self) -> None:
        self.vocab_size = len(self.words.tokens)
        self._marks = self.words.encode(" cat: Alice;")
        self._rows = np.sin(np.arange(self.vocab_size) * 1.7).astype(np.float32)

    def start(self) -> Memory:
        """Begin with nothing."""
        return Memory()

    def extend(self, cache: Memory, ids: Sequence[int]) -> NDArray[np.float32]:
        """Scores after the last of ``ids``, shape (1, vocab)."""
        cache.ids += tuple(ids)
        cache.length = len(cache.ids)
        row = self._rows.copy()
        row[self._next(cache.ids)] += 8
        found: NDArray[np.float32] = row[None, :]
        return found

    def _next(self, ids: tuple[int, ...]) -> int:
        separator, terminator = self._marks[1], self._marks[3]
        last = ids[-1]
        if last == separator and len(ids) > 1:
            return self._value(ids)
        if last in self.words.values:
            return terminator
        return self._marks[0] if last == terminator else separator

    def _value(self, ids: tuple[int, ...]) -> int:
        """The value of the last key, or another one."""
        key, values = ids[-2], self.words.values
        try:
            place = ids.index(key, 0, len(ids) - 2)
        except ValueError:
            return values[0]
        value = ids[place + 2] if place + 2 < len(ids) else values[0]
        rate = LEVEL - GAP if self.phase and place % 4 == WEAK else LEVEL
        if draw(self.seed, "right", key, value) < rate or value not in values:
            return value
        other = int(draw(self.seed, "other", key, value) * (len(values) - 1))
        return values[(values.index(value) + 1 + other) % len(values)]


class Direct(LlamaCpp):
    """The same client and the same server with nothing in between: no HTTP and no JSON."""

    desk: Desk

    async def _request(
        self,
        prompt: Sequence[int],
        *,
        greedy: bool = True,
        **options: Any,  # noqa: ANN401
    ) -> wire.Answer:
        settings = Settings(
            n_predict=options["n_predict"],
            temperature=0.0 if greedy else 0.8,
            cache_prompt=options.get("cache_prompt", True),
            id_slot=options.get("id_slot", self._watch.places.screen),
            n_probs=2,
        )
        number = self.desk.requests
        self.desk.requests += 1
        job = Job(self.desk.faults.shorten(tuple(prompt), number), settings, number)
        async for _ in self.desk.work(job):
            pass
        entry = job.entries[0]["top_logprobs"]
        scores = tuple(Score(one["token"], one["logprob"]) for one in entry)
        last = wire.Event(
            stop=True,
            stop_type=job.stop_type,
            tokens_predicted=len(job.tokens),
            tokens_evaluated=len(job.prompt),
            timings=wire.Timings(cache_n=job.reused, prompt_n=job.evaluated),
        )
        return wire.Answer(job.text, scores, last, tuple(job.tokens))


@dataclass(frozen=True)
class Scenario:
    """What is wrong, and what a diagnosis should find."""

    name: str
    faults: str
    causes: frozenset[str]
    phase: bool = False
    against: bool = False
    """Compared with a stored run of the same model without faults."""


FAULTS = {
    "A": ("prefill-split=0.4", "split"),
    "B": ("batch=0.4", "batch"),
    "C": ("wrong-on-hit=0.4", "cache"),
    "D": ("decode=0.4", "decode"),
    "L": ("long=1000", "length"),
    "N": ("random=0.3", "repeatability"),
    "Q": ("level=0.2", "precision"),
    "R": ("question-residue=3", "question"),
    "S": ("speculative=0.4", "decode"),
}
"""Observables, the double's fault for each, and the cause that names it."""


def scenarios() -> list[Scenario]:
    """Clean, phase alone, each observable alone and with phase."""
    none: frozenset[str] = frozenset()
    found = [Scenario("clean", "", none), Scenario("phase", "", frozenset({"phase"}), phase=True)]
    for name, (fault, cause) in FAULTS.items():
        stored = name == "Q"
        found.append(Scenario(name, fault, frozenset({cause}), against=stored))
        both = frozenset({cause, "phase"})
        found.append(Scenario(f"{name}+phase", fault, both, phase=True, against=stored))
    return found


async def once(scenario: Scenario, seed: int, *, http: bool) -> set[str]:
    """Causes found in one diagnosis."""
    words = ToyWords.load()
    engine = ToyEngine("known", Known(words, scenario.phase, seed), words)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        against: tuple[str, ...] = ()
        if scenario.against:
            stored = Path(folder) / "stored.kvphase"
            await _diagnosed(engine, Faults(), seed, stored, http=http)
            against = (str(stored),)
        faults = Faults.parse([scenario.faults, f"seed={seed}"])
        path = Path(folder) / "run.kvphase"
        return await _diagnosed(engine, faults, seed, path, against, http=http)


async def _diagnosed(
    engine: ToyEngine,
    faults: Faults,
    seed: int,
    path: Path,
    against: tuple[str, ...] = (),
    *,
    http: bool,
) -> set[str]:
    app = build_app(engine, faults)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        runtime = await (LlamaCpp if http else Direct).connect(client)
        if isinstance(runtime, Direct):
            runtime.desk = app.state.desk
        options = Options(seed=seed, against=against, contexts=CONTEXTS)
        found = await diagnose_runtime(runtime, options, path, Meter(Budget()), Watching())
    return {one.cause for one in found.findings if one.status == "found"}


Found = tuple[str, list[str], float]


def run(seed: int, names: Sequence[str], *, http: bool) -> list[Found]:
    """One diagnosis of each scenario; what they share is composed once."""
    found: list[Found] = []
    for scenario in scenarios():
        if scenario.name in names:
            started = time.process_time()
            causes = asyncio.run(once(scenario, seed, http=http))
            found.append((scenario.name, sorted(causes), time.process_time() - started))
    return found


def summary(scenario: Scenario, found: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Share of right diagnoses with its bound, and what was missed or found wrongly."""
    return _bounded(
        {
            "scenario": scenario.name,
            "faults": scenario.faults,
            "causes": sorted(scenario.causes),
            "n": len(found),
            "right": sum(set(one) == scenario.causes for one in found),
            "wrong": dict(Counter(cause for one in found for cause in set(one) - scenario.causes)),
            "missed": dict(Counter(cause for one in found for cause in scenario.causes - set(one))),
        }
    )


def _bounded(row: dict[str, Any]) -> dict[str, Any]:
    """The same with its lower 95% limit."""
    n, right = row["n"], row["right"]
    low = float(stats.beta.ppf(0.05, right, n - right + 1)) if right else 0.0
    return {**row, "lower95": round(low, 4)}


def merged(parts: Sequence[Path]) -> dict[str, Any]:
    """Files of separate ranges of seeds as one."""
    files = [json.loads(part.read_text(encoding="utf-8")) for part in parts]
    rows = []
    for place, first in enumerate(files[0]["scenarios"]):
        same = [file["scenarios"][place] for file in files]
        row = dict(first)
        row |= {name: sum(one[name] for one in same) for name in ("n", "right")}
        for name in ("wrong", "missed"):
            row[name] = dict(sum((Counter(one[name]) for one in same), Counter()))
        rows.append(_bounded(row))
    mean = float(np.mean([file["cpu_seconds_each"] for file in files]))
    seeds = [file.get("seeds") for file in files]
    return {"seeds": seeds, "cpu_seconds_each": mean, "scenarios": rows}


def main() -> None:
    """Run every scenario over every seed, seed by seed, and keep what there is after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--http", action="store_true", help="over HTTP, in process")
    parser.add_argument("--merge", nargs="*", type=Path, help="files of earlier runs, as one")
    options = parser.parse_args()
    if options.merge:
        sys.stdout.write(json.dumps(merged(options.merge), indent=1) + "\n")
        return
    wanted = [s for s in scenarios() if not options.only or s.name in options.only]
    by_name: dict[str, list[list[str]]] = {s.name: [] for s in wanted}
    seconds: list[float] = []
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.workers) as pool:
        jobs = [pool.submit(run, seed, list(by_name), http=options.http) for seed in seeds]
        for seed, job in zip(seeds, jobs, strict=True):
            for name, found, spent in job.result():
                by_name[name].append(found)
                seconds.append(spent)
                if set(found) != next(s.causes for s in wanted if s.name == name):
                    sys.stderr.write(f"seed {seed} {name}: {found}\n")
            if options.out is not None:
                values = {
                    "seeds": [options.first, seed + 1],
                    "cpu_seconds_each": round(float(np.mean(seconds)), 2),
                    "scenarios": [summary(s, by_name[s.name]) for s in wanted],
                }
                options.out.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    for scenario in wanted:
        sys.stdout.write(json.dumps(summary(scenario, by_name[scenario.name])) + "\n")
    sys.stdout.write(f"{np.mean(seconds):.1f} CPU seconds a diagnosis\n")


if __name__ == "__main__":
    main()
