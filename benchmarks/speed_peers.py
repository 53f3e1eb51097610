"""The same questions on the same server by the plain client loop and by lm-evaluation-harness.

The client loop is that of needle-in-a-haystack and of RULER: each prompt is sent whole, one after
the other. With the server's cache on it is measured twice: the questions of one context on end, and
prompts that differ from their first tokens on, as theirs do (another haystack or needle each).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from rows import Row

from kvphase.runs.store import Store
from kvphase.types import Arm

if TYPE_CHECKING:
    from pathlib import Path

    from speed_cost import Server

WHOLE, ON_END, HARNESS = 2, 12, 6
"""Prompts sent with the cache off or of other contexts; of one context; by the harness."""
TASK = """\
task: kvphase_needle
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 1, do_sample: false}}
metric_list:
  - metric: exact_match
"""


def rows(server: Server, run: Path, harness: Path | None) -> list[Row]:
    """Seconds and tokens a question, each way, on the prompts of a run of ours."""
    with Store.read(run) as store:
        asks = [ask for ask in store.asks() if ask.arm is Arm.SCREEN]
    prompts = [list(ask.prompt) for ask in asks[:ON_END]]
    others = [
        prompt[:1] + prompt[-1 - n :] + prompt[1 : -1 - n] for n, prompt in enumerate(prompts)
    ]
    ways = {
        "each whole, cache off": [server.complete(p, cache=False) for p in prompts[:WHOLE]],
        "each whole, cache on, other contexts": [
            server.complete(p, cache=True) for p in others[:WHOLE]
        ],
        "each whole, cache on, one context on end": [
            server.complete(p, cache=True) for p in prompts
        ],
    }
    made = []
    for name, replies in ways.items():
        # On end, the first pays for the context; it is shown as part of the mean.
        made.append(
            _row(
                f"client loop, {name}",
                sum(r["seconds"] for r in replies),
                sum(r["prompt_n"] for r in replies),
                len(replies),
                len(prompts[0]),
            )
        )
    if harness is not None:
        made.append(_harness(server, harness, run.parent, prompts[:HARNESS], asks))
    return made


def _row(what: str, seconds: float, tokens: float, n: int, length: int) -> Row:
    data = {"seconds": seconds, "tokens": tokens, "questions": n, "prompt_tokens": length}
    figure = f"{seconds / n:.2f} s and {tokens / n:,.0f} tokens evaluated a question"
    return Row("peers", f"{length:,} tokens, {n} questions: {what}", figure, data=data)


def _harness(
    server: Server, program: Path, folder: Path, prompts: list[list[int]], asks: list[Any]
) -> Row:
    """lm-evaluation-harness with a task of ours over the server's OpenAI endpoint."""
    data = folder / "needle.jsonl"
    texts = [_text(server, prompt) for prompt in prompts]
    lines = [
        json.dumps({"prompt": text, "answer": ask.expected})
        for text, ask in zip(texts, asks, strict=False)
    ]
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "kvphase_needle.yaml").write_text(TASK.format(file=data), encoding="utf-8")
    arguments = f"base_url={server.address}/v1/completions,model=m,num_concurrent=1"
    arguments += ",tokenizer_backend=None,tokenized_requests=False,max_retries=1,timeout=3600"
    command = [str(program), "--model", "local-completions", "--model_args", arguments]
    command += ["--tasks", "kvphase_needle", "--include_path", str(folder)]
    command += ["--output_path", str(folder / "harness")]
    own, started = server.own(), time.perf_counter()
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    ended = subprocess.run(  # noqa: S603
        command, env=offline, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["?"])[-1]
        return Row("peers", "lm-evaluation-harness", f"failed: {last[:100]}")
    tokens = server.own()["prompt_tokens_total"] - own["prompt_tokens_total"]
    what = "lm-evaluation-harness, whole command, cache as the server has it"
    return _row(what, seconds, tokens, len(prompts), len(prompts[0]))


def _text(server: Server, prompt: list[int]) -> str:
    request = urllib.request.Request(  # noqa: S310
        f"{server.address}/detokenize",
        json.dumps({"tokens": prompt}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        text: str = json.load(answer)["content"]
    return text
