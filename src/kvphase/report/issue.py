"""The text of a bug report, ready to paste: what was asked of what, what came, how to see it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Catalogue
from kvphase.report.lines import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvphase.catalogue import Language
    from kvphase.causes.minimal import Pair

_FACTS = ("model", "quant", "runtime", "build", "template", "thinking", "kvphase", "seed")


def issue(
    command: str,
    facts: Mapping[str, Any],
    document: Mapping[str, Any],
    pair: Pair | None,
    language: Language = "en",
) -> str:
    """Markdown in a language; figures and causes as the document has them, in English."""
    say = Catalogue(language)
    title = say("bundle.title", model=_text(facts["model"]), verdict=_text(_headline(document)))
    parts = [f"# {title}", _table(facts), f"## {say('bundle.found')}"]
    parts += _causes(document) if command == "diagnose" else _curve(document, say)
    if pair is not None:
        parts += [f"## {say('bundle.reproduce')}", say("bundle.how"), *_pair(pair, say)]
    else:
        parts.append(say("bundle.no-pair"))
    parts.append(say("bundle.made"))
    return "\n\n".join(parts) + "\n"


def _headline(document: Mapping[str, Any]) -> str:
    found = [one["cause"] for one in document.get("causes", []) if one["status"] == "found"]
    return ", ".join(found) if found else str(document["verdict"]).split(".")[0]


def _table(facts: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {_text(facts[name])} |" for name in _FACTS if facts.get(name) is not None]
    return "\n".join(["| | |", "|---|---|", *rows])


def _causes(document: Mapping[str, Any]) -> list[str]:
    rows = ["| cause | | evidence |", "|---|---|---|"]
    for one in document["causes"]:
        told = _text(one["evidence"] or "")
        if one["status"] == "not-found" and one["would_have_seen"]:
            told += f"; would have seen {_text(one['would_have_seen'])}"
        rows.append(f"| {one['cause']} | {one['status']} | {told} |")
    return [_text(document["verdict"]), "\n".join(rows)]


def _curve(document: Mapping[str, Any], say: Catalogue) -> list[str]:
    parts = [f"{document['verdict']}: {_text(document['reason'])}"]
    rows = [f"| {say('bundle.residue')} | n | % | 95% |", "|---|---|---|---|"]
    for point in document["curve"]:
        low, high = (100 * end for end in point["ci95"])
        rate = 100 * point["accuracy"]
        rows.append(f"| {point['residue']} | {point['n']} | {rate:.1f} | {low:.1f}, {high:.1f} |")
    parts.append("\n".join(rows))
    audit = document["audit"]
    parts.append(
        say(
            "bundle.controls",
            repeat=audit["repeat_flips"],
            repeated=audit["repeated"],
            cold_flips=audit["cold_flips"],
            cold=audit["cold"],
        )
    )
    confirm = document.get("confirm")
    if confirm is not None:
        parts.append(_text(confirm["reason"]))
    return parts


def _pair(pair: Pair, say: Catalogue) -> list[str]:
    rows = [
        f"| {step.how} | {len(step.prompt)} | `{_code(step.answer)}` | `{_code(step.expected)}` |"
        for step in pair.steps
    ]
    heads = "how", "tokens", "answer", "right"
    head = " | ".join(say(f"bundle.column.{name}") for name in heads)
    return ["\n".join([f"| {head} |", "|---|---|---|---|", *rows])]


def _text(value: object) -> str:
    """On one line, with nothing that Markdown or a table would take for its own."""
    text = html.escape(" ".join(clean(str(value)).split()), quote=False)
    for mark in "\\`|[]*_":
        text = text.replace(mark, "\\" + mark)
    return text


def _code(text: str) -> str:
    """Inside backticks."""
    return clean(text).replace("`", "'").replace("|", "\\|")


__all__ = ["issue"]
