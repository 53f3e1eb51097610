"""Formats of one record a prompt: key-value lookups, RULER's needles, needles in essays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvphase.probes.formats.items import Fact, Item, located, no_good, only_place

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOTS = 2
"""Demonstrations that HELMET shows of those in its file."""
_KV_TASK = "Extract the value corresponding to the specified key in the JSON object below."
UUID_ROOM, RULER_ROOM, NEEDLE_ROOM = 8, 48, 64
"""Answer tokens beyond the answer's own: a quotation mark, a phrase, a sentence before it."""
ESSAY = ("context", "haystack", "essay", "prompt", "input")
ASKS = ("retrieval_question", "question", "query")


def is_kv(record: dict[str, Any]) -> bool:
    """A record of "lost in the middle"."""
    return "ordered_kv_records" in record


def kv(line: int, record: dict[str, Any]) -> Item:
    """A lookup in an object of keys and values, as "lost in the middle" asks it.

    Raises:
        UnusableError: the record is not whole, or its key is not there exactly once.
    """
    pairs, key, value = record["ordered_kv_records"], record.get("key"), record.get("value")
    if not _are_pairs(pairs) or not isinstance(key, str) or not isinstance(value, str):
        raise no_good("odd-kv")
    rows = [f'"{k}": "{v}"' for k, v in pairs]
    text = f"{_KV_TASK}\n\nJSON data:\n{{" + ",\n ".join(rows) + f'}}\n\nKey: "{key}"\n'
    text += "Corresponding value:"
    return Item(line, (text,), (_pair(text, key, value),), UUID_ROOM)


def _are_pairs(pairs: object) -> bool:
    return isinstance(pairs, list) and all(
        isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one)
        for one in pairs
    )


def _pair(text: str, key: str, value: str) -> Fact:
    """The value of ``key`` where an object in ``text`` holds it."""
    record = f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
    count = text.count(record)
    if count != 1:
        key = "absent" if not count else "several"
        raise no_good(key, answer=record[:60], count=count)
    end = text.index(record) + len(record)
    return Fact((value,), "contains", 0, end - 1 - len(value), end)


def is_json_kv(record: dict[str, Any]) -> bool:
    """A record of HELMET's json_kv."""
    held = all(isinstance(record.get(name), str) for name in ("context", "question", "answer"))
    return held and "{" in record["context"] and "needle" not in record


def json_kv(line: int, record: dict[str, Any]) -> Item:
    """A lookup as HELMET asks it: the object, the task, demonstrations, the key.

    Raises:
        UnusableError: the key is not there exactly once.
    """
    context, key = record["context"], record["question"]
    fact = _pair(context, key, record["answer"])
    text = f"{context}\n\n{_KV_TASK}\n\n"
    demos: Any = record.get("demos")
    if _are_pairs(demos):
        shown = (f"Key: {k}\nCorresponding value: {v}\n\n" for k, v in demos[:SHOTS])
        text += "".join(shown)
    text += f"Key: {key}\nCorresponding value:"
    return Item(line, (text,), (fact,), UUID_ROOM)


def is_ruler(record: dict[str, Any]) -> bool:
    """A record of RULER."""
    outputs = record.get("outputs")
    return isinstance(record.get("input"), str) and isinstance(outputs, list | str)


def ruler(line: int, record: dict[str, Any]) -> Item:
    """RULER's prompt as it stands, with the answer's prefix where the file keeps it apart.

    Raises:
        UnusableError: an output is not in the prompt, or in several places.
    """
    outputs = record["outputs"]
    answers = [outputs] if isinstance(outputs, str) else [str(one) for one in outputs]
    answers = [answer.strip() for answer in answers]
    if not answers or not all(answers):
        raise no_good("no-answer")
    prefix = record.get("answer_prefix") or record.get("gen_prefix") or ""
    text = record["input"]
    facts = located((text,), answers)
    if isinstance(prefix, str) and not text.endswith(prefix):
        text += prefix
    return Item(line, (text,), tuple(facts), RULER_ROOM, tokens=_count(record.get("tokens")))


def is_needle(record: dict[str, Any]) -> bool:
    """An essay with a needle in it."""
    held = _first(record, ESSAY) is not None and _first(record, ASKS) is not None
    return held and isinstance(record.get("needle"), str)


def is_cell(record: dict[str, Any]) -> bool:
    """A result of the needle-in-a-haystack test, which holds no prompt."""
    return {"context_length", "depth_percent", "score"} <= record.keys()


def needle(line: int, record: dict[str, Any]) -> Item:
    """An essay and the question about its needle.

    Raises:
        UnusableError: the needle is not in the essay exactly once, or the answer not in the needle.
    """
    essay, asked, said = _first(record, ESSAY), _first(record, ASKS), record["needle"].strip()
    answer = record.get("answer", record.get("expected"))
    if not isinstance(answer, str) or not answer.strip():
        raise no_good("no-answer")
    text = essay or ""
    number, begin, end = only_place((text,), said)
    at = said.find(answer.strip())
    if at >= 0:
        begin += at
    if asked and asked not in text:
        text = f"{text.rstrip()}\n\n{asked}"
        text += "" if asked.rstrip().endswith((":", "is")) else "\n"
    return Item(
        line,
        (text,),
        (Fact((answer.strip(),), "contains", number, begin, end),),
        NEEDLE_ROOM,
        tokens=_count(record.get("tokens")),
    )


def _first(record: dict[str, Any], names: Sequence[str]) -> str | None:
    """The first of some entries that is a text."""
    return next((record[name] for name in names if isinstance(record.get(name), str)), None)


def _count(value: object) -> int | None:
    """Answer tokens that a record asks for; None where it says nothing usable."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
