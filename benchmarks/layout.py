"""`kvphase layout --write` on random toy prompts: what becomes of the accuracy.

    python benchmarks/layout.py [--prompts 200] [--profiles FOLDER] [--json FILE.json]

Profiles are measured with `kvphase check` on other contexts (and kept in FOLDER). For each kind of
prompt (records on end, or with words between them) the prompts are asked as they come, at every
phase (filler of 0 to 3 tokens before the marked record: the phase curve of these very prompts), and
as each change wrote them. Accuracies come from the written files, asked here, not from what the
command says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from kvphase.runtimes.toy import ToyRuntime
from kvphase.stats.intervals import wilson
from kvphase.types import Arm, Ask

RECORDS, DEMONSTRATIONS, PERIOD = 24, 4, 4
FIRST_SEED = 50_000
WORDS = json.loads((resources.files("kvphase.data") / "toys" / "vocab.json").read_text("utf-8"))
FILLER = [word for phrase in WORDS["phrases"] for word in phrase]
KINDS = {"dense": "prefix", "spaced": "insequence"}
"""Prompts and the design of the profile that is like them."""


def prompts(seed: int, kind: str, spans: int) -> list[dict[str, str]]:
    """Questions about each of the marked records of one random text."""
    dice = random.Random(f"{seed} {kind} {spans}")  # noqa: S311 - no secrets
    keys, values = dice.sample(WORDS["keys"], RECORDS), dice.sample(WORDS["values"], RECORDS)
    records = [f"{key}:{value};" for key, value in zip(keys, values, strict=True)]
    last = "".join(records[-DEMONSTRATIONS:])
    asked = sorted(dice.sample(range(1, RECORDS - DEMONSTRATIONS - 4), spans))
    at = dice.randrange(len(FILLER) - 8)
    text = "".join(FILLER[at : at + dice.randrange(8)])
    for number, record in enumerate(records):
        if kind == "spaced":
            at = dice.randrange(len(FILLER) - 8)
            text += "".join(FILLER[at : at + dice.randrange(8)])
        text += f"{{{{pad}}}}{{{{mark}}}}{record}{{{{/mark}}}}" if number in asked else record
    text += "".join(FILLER[:20]) + "{{pad}}" + last
    return [
        {"name": f"{seed}-{one}", "prompt": f"{text}{keys[one]}:", "answer": values[one].strip()}
        for one in asked
    ]


def bare(text: str) -> str:
    """Without marks."""
    for mark in ("{{pad}}", "{{mark}}", "{{/mark}}"):
        text = text.replace(mark, "")
    return text


def shifted(text: str, size: int) -> str:
    """With filler of ``size`` words, each one token, before the first marked record."""
    return bare(text.replace("{{pad}}", "".join(FILLER[30 : 30 + size]), 1))


async def asked(runtime: ToyRuntime, tasks: list[dict[str, str]]) -> np.ndarray:
    """1 where the greedy answer is right, shape (tasks,)."""
    bos = runtime.limits.bos
    right = []
    for task in tasks:
        (ids,) = await runtime.tokenize([task["prompt"]])
        expected = " " + task["answer"]
        ask = Ask("", (), (*bos, *ids), 0, expected, (expected,), Arm.COLD, 0, 0, 0, 0)
        right.append((await runtime.complete(ask)).text == expected)
    return np.array(right, np.int8)


async def phase_curve(runtime: ToyRuntime, tasks: list[dict[str, str]]) -> list[float]:
    """Accuracy at each residue of the first marked record's position, all at every residue."""
    bos = len(runtime.limits.bos)
    hits, counts = np.zeros(PERIOD), np.zeros(PERIOD)
    for size in range(PERIOD):
        moved = [{**task, "prompt": shifted(task["prompt"], size)} for task in tasks]
        right = await asked(runtime, moved)
        heads = [bare(task["prompt"].split("{{mark}}")[0]) for task in tasks]
        for ids, hit in zip(await runtime.tokenize(heads), right, strict=True):
            residue = (bos + len(ids) + size) % PERIOD
            hits[residue] += hit
            counts[residue] += 1
    return [round(float(share), 4) for share in hits / counts]


def kvphase(folder: Path, *words: str) -> str:
    """Run the command as a user would."""
    command = [sys.executable, "-m", "kvphase", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


def asked_again(changed: list[dict[str, str]], task: dict[str, str]) -> dict[str, str]:
    """A task in the changed version of its text."""
    seed = task["name"].partition("-")[0]
    (new,) = (one["prompt"] for one in changed if one["name"].partition("-")[0] == seed)
    question = " " + task["prompt"].rpartition(" ")[2]
    return {**task, "prompt": new[: new.rindex(" ")] + question}


def level(right: np.ndarray, per_prompt: int) -> dict[str, Any]:
    """Accuracy with an interval; over prompts where several questions share one."""
    n = len(right)
    if per_prompt == 1:
        low, high = wilson(float(right.sum()), n)
    else:
        means = right.reshape(-1, per_prompt).mean(axis=1)
        half = 1.96 * float(means.std(ddof=1)) / len(means) ** 0.5
        low, high = float(right.mean()) - half, float(right.mean()) + half
    return {"accuracy": round(float(right.mean()), 4), "ci95": [round(low, 4), round(high, 4)]}


def rise(before: np.ndarray, after: np.ndarray, per_prompt: int) -> dict[str, Any]:
    """Paired difference in percentage points, over prompts."""
    change = (after.astype(float) - before).reshape(-1, per_prompt).mean(axis=1)
    half = 196 * float(change.std(ddof=1)) / len(change) ** 0.5
    mean = 100 * float(change.mean())
    return {"pp": round(mean, 2), "ci95": [round(mean - half, 2), round(mean + half, 2)]}


async def measured(
    folder: Path, profiles: Path, kind: str, spans: int, count: int
) -> dict[str, Any]:
    """One kind of prompts: as they come, at every phase, and changed in each way."""
    tasks = [t for n in range(count) for t in prompts(FIRST_SEED + n, kind, spans)]
    # Questions about one text differ in their last word only: it is laid out once.
    (folder / "suite.json").write_text(json.dumps(tasks[::spans]), encoding="utf-8")
    plain = [{**task, "prompt": bare(task["prompt"])} for task in tasks]
    async with ToyRuntime.load("w8s4") as runtime:
        before = await asked(runtime, plain)
        found: dict[str, Any] = {
            "prompts": count,
            "questions": len(tasks),
            "as_it_is": level(before, spans),
            "changes": {},
        }
        if spans == 1:
            curve = await phase_curve(runtime, tasks)
            more = [t for n in range(2 * count) for t in prompts(10**6 + n, kind, 1)]
            wide = await phase_curve(runtime, more)
            for name, one in (("these_prompts", curve), ("twice_as_many_others", wide)):
                found[f"curve_{name}"] = {
                    "by_residue_mod_4": one,
                    "mean": round(float(np.mean(one)), 4),
                    "percentile_90": round(float(np.percentile(one, 90)), 4),
                }
        for way in ("pad", "head", "tail", "repeat"):
            words = ["layout", "suite.json", "toy:w8s4", "--change", way, "--json"]
            words += [
                "--profile",
                str(profiles / f"w8s4-{KINDS[kind]}.kvphase"),
                "--write",
                f"{way}.json",
            ]
            shown = json.loads(kvphase(folder, *words))
            changed = json.loads((folder / f"{way}.json").read_text("utf-8"))
            after = await asked(runtime, [asked_again(changed, task) for task in tasks])
            added = [one["tokens_after"] - one["tokens"] for one in shown["prompts"]]
            spread = [span["after"]["phase"] for one in shown["prompts"] for span in one["spans"]]
            claims = [s["after"]["accuracy"] for one in shown["prompts"] for s in one["spans"]]
            found["changes"][way] = {
                **level(after, spans),
                "rise_over_as_it_is": rise(before, after, spans),
                "tokens_added": round(float(np.mean(added)), 2),
                "spans_at_phase": [spread.count(r) for r in range(PERIOD)],
                "profile_said": round(float(np.mean(claims)), 4),
            }
    return found


def control(folder: Path, profiles: Path, count: int) -> dict[str, Any]:
    """The model with full attention, by its own profile and without one: said beforehand?"""
    tasks = [task for n in range(count) for task in prompts(FIRST_SEED + n, "dense", 1)]
    (folder / "full.json").write_text(json.dumps(tasks), encoding="utf-8")
    said = {}
    for name, more in (
        ("with_profile", ["--profile", str(profiles / "full-insequence.kvphase")]),
        ("without", []),
    ):
        words = ["layout", "full.json", "toy:full", *more]
        shown = json.loads(kvphase(folder, *words, "--json"))
        text = kvphase(folder, *words, "--lang", "en")
        said[name] = {
            "basis": shown["basis"],
            "changed": sum(one["changed"] for one in shown["prompts"]),
            "says_nothing_is_to_be_gained": "Nothing is to be gained" in text,
        }
    return said


def profile(path: Path, target: str, design: str) -> dict[str, Any]:
    """A run of ``kvphase check`` as any user would make it, unless it is there already."""
    words = ["check", target, "--design", design, "--out", str(path), "--json"]
    document = json.loads(kvphase(path.parent, *words, *(["--resume"] if path.exists() else [])))
    curve = [point["accuracy"] for point in document["curve"]]
    kept = {key: document[key] for key in ("verdict", "period", "mean", "n")}
    return {**kept, "by_residue_mod_8": [round(one, 4) for one in curve]}


def main() -> None:
    """Profiles, then prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profiles = (options.profiles or folder).resolve()
        for target, names in (("toy:w8s4", KINDS.values()), ("toy:full", ("insequence",))):
            for design in names:
                file = f"{target.removeprefix('toy:')}-{design}"
                found[file] = profile(profiles / f"{file}.kvphase", target, design)
        found["toy_full"] = control(folder, profiles, options.prompts)
        for kind in KINDS:
            for spans in (1, 3):
                run = measured(folder, profiles, kind, spans, options.prompts)
                found[f"{kind}_{spans}_spans"] = asyncio.run(run)
                sys.stdout.write(f"{kind} {spans}\n{json.dumps(found[f'{kind}_{spans}_spans'])}\n")
                sys.stdout.flush()
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
