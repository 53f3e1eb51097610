"""``kvphase info`` as text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from kvphase.report.terminal import DEMO, clean

if TYPE_CHECKING:
    from rich.console import Console

    from kvphase.runs.inspect import Endpoint


def show_endpoint(endpoint: Endpoint, out: Console) -> None:
    """One line a fact, one line an ability: yes, no, or what kvphase does instead."""
    about = endpoint.about
    name = clean(about.model or about.target)
    out.print(Text(name + (f"   {DEMO}" if about.toy else ""), style="bold"))
    facts = {
        "runtime": about.runtime,
        "build": about.build,
        "quantisation": about.quant,
        "context": f"{endpoint.limits.context_tokens} tokens",
        **about.extra,
    }
    for label, value in {**facts, **_abilities(endpoint)}.items():
        if value is not None:
            out.print(Text(f"  {label:<20} {clean(str(value))}"))


def _abilities(endpoint: Endpoint) -> dict[str, str]:
    limits = endpoint.limits
    scores = f"yes, the {limits.top_logprobs} likeliest next tokens"
    return {
        "token ids in": _yes(limits.ids, "no: positions are verified by encoding the text again"),
        "BOS": f"yes, id {limits.bos[0]}, put in front once" if limits.bos else "none is added",
        "log-probabilities": _yes(
            limits.top_logprobs > 0, "no: answers are matched as text", scores
        ),
        "cache report": _yes(limits.cache_report, "no: reuse is judged by time"),
        "cold question": _yes(limits.cold, "no: a salted prefix of equal length"),
        "chat template": _yes(endpoint.chat, "no: prompts are raw text"),
        "one-token words": _words(endpoint),
    }


def _yes(able: bool, instead: str, yes: str = "yes") -> str:
    return yes if able else instead


def _words(endpoint: Endpoint) -> str:
    vocab = endpoint.vocab
    if vocab is None:
        return f"no: {endpoint.vocab_error}"
    return (
        f"yes, {len(vocab.keys)} keys, {len(vocab.values)} values, {len(vocab.phrases)} phrases; "
        f"a record is KEY{vocab.separator.text} VALUE{vocab.terminator.text}".replace("\n", "\\n")
    )


def endpoint_json(endpoint: Endpoint) -> str:
    """The same facts as JSON."""
    vocab = endpoint.vocab
    words = None
    if vocab is not None:
        words = {
            "keys": len(vocab.keys),
            "values": len(vocab.values),
            "phrases": len(vocab.phrases),
            "separator": vocab.separator.text,
            "terminator": vocab.terminator.text,
            "digest": vocab.digest,
        }
    return json.dumps(
        {
            "about": asdict(endpoint.about),
            "limits": asdict(endpoint.limits),
            "vocabulary": words,
            "vocabulary_error": endpoint.vocab_error,
            "chat_template": endpoint.chat,
        },
        indent=2,
    )
