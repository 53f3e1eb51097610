"""``kvphase info`` as text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.report.lines import clean, left, show
from kvphase.report.terminal import ENGLISH

if TYPE_CHECKING:
    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.runs.inspect import Endpoint
    from kvphase.types import Limits

_LABEL = 20
"""Cells of the column of names."""


def show_endpoint(endpoint: Endpoint, out: Console, say: Catalogue = ENGLISH) -> None:
    """One line a fact, one line an ability: yes, no, or what kvphase does instead."""
    about = endpoint.about
    name = clean(about.model or about.target)
    show(out, f"{name}   {say('terminal.demo')}" if about.toy else name, "bold")
    facts = {
        "runtime": about.runtime,
        "build": about.build,
        "quant": about.quant,
        "template": None if about.template == "none" else about.template,
        "context": say("endpoint.tokens", n=endpoint.limits.context_tokens),
        **about.extra,
    }
    for label, value in {**facts, **_abilities(endpoint, say)}.items():
        if value is not None:
            line = f"  {left(_label(label, say), _LABEL)} {clean(say.of(value))}"
            show(out, line, hang=" " * (_LABEL + 3))


def _label(label: str, say: Catalogue) -> str:
    """A fact's name; those of a runtime's own may not be in the catalogue."""
    try:
        return say(f"endpoint.{label}")
    except KeyError:
        return clean(label)


def _abilities(endpoint: Endpoint, say: Catalogue) -> dict[str, str]:
    limits = endpoint.limits
    bos, top = limits.bos, limits.top_logprobs
    if len(bos) > 1:
        starts = say("endpoint.bos.head", n=len(bos))
    else:
        starts = say("endpoint.bos.yes", id=bos[0]) if bos else say("endpoint.bos.no")
    return {
        "ids": say("endpoint.yes" if limits.ids else "endpoint.ids.no"),
        "tokenizer": _tokenizer(limits, say),
        "bos": starts,
        "offset": say(_offset(limits)),
        "logprobs": say("endpoint.logprobs.yes", n=top) if top else say("endpoint.logprobs.no"),
        "report": say("endpoint.yes" if limits.cache_report else "endpoint.report.no"),
        "cold": say("endpoint.yes" if limits.cold else "endpoint.cold.no"),
        "chat": say(_chat(endpoint)),
        "words": _words(endpoint, say),
    }


def _tokenizer(limits: Limits, say: Catalogue) -> str:
    """Whose tokenizer counts."""
    own = limits.tokenizer in ("", message("endpoint.tokenizer.server"))
    return say("endpoint.yes") if own else say("endpoint.tokenizer.local", source=limits.tokenizer)


def _chat(endpoint: Endpoint) -> str:
    """What there is of a chat template."""
    if endpoint.chat:
        return "endpoint.yes"
    always = endpoint.about.template != "none"
    return "endpoint.chat.always" if always else "endpoint.chat.no"


def _offset(limits: Limits) -> str:
    """Whether positions are those of the final prompt."""
    if not limits.counted:
        return "endpoint.offset.uncounted"
    return "endpoint.yes" if limits.offset_known else "endpoint.offset.no"


def _words(endpoint: Endpoint, say: Catalogue) -> str:
    vocab = endpoint.vocab
    if vocab is None:
        return say("endpoint.words.no", why=endpoint.vocab_error)
    record = f"KEY{vocab.separator.text} VALUE{vocab.terminator.text}".replace("\n", "\\n")
    return say(
        "endpoint.words.yes",
        keys=len(vocab.keys),
        values=len(vocab.values),
        phrases=len(vocab.phrases),
        record=record,
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
    limits = asdict(endpoint.limits)
    return json.dumps(
        {
            "about": asdict(endpoint.about),
            "limits": {**limits, "controls": sorted(limits["controls"])},
            "vocabulary": words,
            "vocabulary_error": endpoint.vocab_error,
            "chat_template": endpoint.chat,
        },
        indent=2,
    )
