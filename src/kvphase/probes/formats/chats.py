"""Chat transcripts: ``messages`` with what the next answer should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvphase.probes.formats.items import Fact, Item, Rule, located, no_good, only_place

if TYPE_CHECKING:
    from collections.abc import Sequence

CHAT_ROOM, WORD_ROOM = 48, 8
RULES: tuple[Rule, ...] = ("contains", "all", "number", "exact", "choice", "regex", "json")
ANSWERS = ("answer", "expected", "target", "ideal")
_PASSED_ON = (
    *("tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs"),
    *("add_generation_prompt", "response_format", "reasoning_format"),
)
"""What moves positions besides the messages."""


def is_chat(record: dict[str, Any]) -> bool:
    """A transcript in OpenAI's form."""
    return isinstance(record.get("messages"), list)


def chat(line: int, record: dict[str, Any]) -> Item:
    """A transcript with its expected answer.

    The answer is ``answer`` (or ``expected``, ``target``, ``ideal``), or what the assistant says
    last; ``match`` is how it is graded; ``needle`` is the text that it rests on, where the answer
    itself does not stand in the prompt (a choice, a regular expression).

    Raises:
        UnusableError: no answer, odd messages, or no single place for the fact.
    """
    messages = record["messages"]
    answers = _answers(record)
    if not answers and isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        answers = [str(messages[-1].get("content") or "").strip()]
        messages = messages[:-1]
    if not answers or not all(answers):
        raise no_good("no-answer")
    rule = record.get("match", "all" if len(answers) > 1 else "contains")
    if rule not in RULES:
        raise no_good("odd-match", match=str(rule)[:60])
    parts = [
        (text, (number, part))
        for number, one in enumerate(messages)
        for part, text in _contents(one)
    ]
    texts = tuple(text for text, _ in parts)
    if not any(text.strip() for text in texts):
        raise no_good("no-text")
    kept = {name: record[name] for name in _PASSED_ON if name in record}
    tokens = record.get("max_tokens", record.get("max_completion_tokens", record.get("tokens")))
    return Item(
        line,
        texts,
        _facts(record, texts, answers, rule),
        WORD_ROOM if rule in ("exact", "choice") else CHAT_ROOM,
        body={"messages": messages, **kept},
        where=tuple(place for _, place in parts),
        tokens=tokens if isinstance(tokens, int) and tokens > 0 else None,
    )


def _answers(record: dict[str, Any]) -> list[str]:
    """The expected answers as texts."""
    given = next((record[name] for name in ANSWERS if record.get(name) is not None), None)
    listed = given if isinstance(given, list) else [] if given is None else [given]
    return [str(one).strip() for one in listed]


def _facts(
    record: dict[str, Any], texts: Sequence[str], answers: Sequence[str], rule: Rule
) -> tuple[Fact, ...]:
    rests = record.get("needle")
    if isinstance(rests, str) and rests.strip():
        number, begin, end = only_place(texts, rests.strip())
        inside = texts[number].find(answers[0], begin, end)
        return (Fact(tuple(answers), rule, number, begin if inside < 0 else inside, end),)
    facts = located(texts, answers, rule)
    return tuple(facts)


def _contents(one: object) -> list[tuple[int, str]]:
    """The texts of a message with their part's number, -1 where the content is one string."""
    if not isinstance(one, dict) or not isinstance(one.get("role"), str):
        raise no_good("odd-messages")
    content = one.get("content")
    if content is None:  # a tool call has none
        return []
    if isinstance(content, str):
        return [(-1, content)]
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise no_good("odd-messages")
    return [(part, str(text)) for part, text in enumerate(texts)]


__all__ = ["chat", "is_chat"]
