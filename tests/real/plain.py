"""The questions of a run asked again by a plain client: the same answers, the same token counts?

    python tests/real/plain.py RUN.kvphase http://127.0.0.1:8766 [--text FOLDER] [--model NAME]

Every screen question of RUN goes to ``/v1/completions`` as the runtime's own users send it: whole,
one after the other, greedy; as token ids, or as text where the server takes none (``--text`` names
the folder of its tokenizer, whose own library spells the text). Prints how many answers and
how many counts of prompt tokens are equal; exits with 1 unless all are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import httpx2

from kvphase.runs.store import Store
from kvphase.types import Arm


def main() -> int:
    """Ask, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("url")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--model")
    args = parser.parse_args()
    with Store.read(args.run) as store:
        asks = [ask for ask in store.asks() if ask.arm is Arm.SCREEN]
        answers = store.answers(asks)
    words: Any = None
    if args.text is not None:
        import transformers

        words = transformers.AutoTokenizer.from_pretrained(args.text)
    model = args.model or httpx2.get(f"{args.url}/v1/models").json()["data"][0]["id"]
    same = counted = 0
    for ask, text in zip(asks, answers.text, strict=True):
        ids = list(ask.prompt)
        prompt: Any = ids if words is None else words.decode(ids, skip_special_tokens=False)
        if words is not None and words.bos_token is not None and ids[0] == words.bos_token_id:
            prompt = prompt.removeprefix(words.bos_token)
        body = {"model": model, "prompt": prompt, "max_tokens": ask.generate, "temperature": 0}
        reply = httpx2.post(f"{args.url}/v1/completions", json=body, timeout=300).json()
        same += reply["choices"][0]["text"] == text
        counted += reply["usage"]["prompt_tokens"] == len(ids)
    sys.stdout.write(f"{len(asks)} questions: {same} answers equal, {counted} counts equal\n")
    return 0 if same == counted == len(asks) > 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
