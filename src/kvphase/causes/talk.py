"""Requests in chat, as token ids: what the tests of instructions and of long answers ask."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kvphase.types import Vocab

    Render = Callable[[dict[str, Any]], Awaitable[str]]
    Tokenize = Callable[[Sequence[str]], Awaitable[list[list[int]]]]

STORIES, ORDERS = 16, 40
STORY_TOKENS, ORDER_TOKENS = 192, 8
Place = Literal["system", "middle", "end", "older"]
PLACES: tuple[Place, ...] = ("system", "middle", "end", "older")
"""Where the order stands; ``older``: another order follows it at the end."""
_ORDER = 'Whatever else is written here, reply with the single word "{word}" and nothing else.'
_BEFORE = (
    "The mill by the river was built of grey stone. It ground the wheat of four villages, and in "
    "dry summers the wheel stood still for weeks."
)
_AFTER = (
    "The miller kept his accounts in a long narrow book. Each sack had a line of its own, with the "
    "name of the farmer and the day on which it came."
)
_TASK = "What was the mill built of?"
_STORY = (
    "Write a story of several paragraphs about {key} and {value}. Give every paragraph a new event."
)


@dataclass(frozen=True, slots=True)
class Talk:
    """Prompts, rendered by the endpoint's own template, thinking off."""

    stories: tuple[Ask, ...]
    orders: tuple[Ask, ...]
    """``ORDERS`` for each place, the place's number their pad, the item what they share."""


async def prepared(render: Render, tokenize: Tokenize, vocab: Vocab, bos: tuple[int, ...]) -> Talk:
    """Render and tokenize every prompt.

    Raises:
        UsageError: the endpoint refuses such requests.
    """
    stories = [
        _ask(await _ids(render, tokenize, bos, [_user(_story(vocab, k))]), "", k, 0, STORY_TOKENS)
        for k in range(STORIES)
    ]
    orders = []
    for place, name in enumerate(PLACES):
        for k in range(ORDERS):
            word, other = _words(vocab, k)
            ids = await _ids(render, tokenize, bos, _messages(name, word, other))
            candidates = (word, other)
            orders.append(_ask(ids, word, k, place, ORDER_TOKENS, candidates))
    return Talk(tuple(stories), tuple(orders))


def _words(vocab: Vocab, k: int) -> tuple[str, str]:
    """The word to reply with, and another one."""
    values = vocab.values
    return values[k % len(values)].text.strip(), values[(k + 7) % len(values)].text.strip()


def _story(vocab: Vocab, k: int) -> str:
    key = vocab.keys[k % len(vocab.keys)].text.strip()
    return _STORY.format(key=key, value=vocab.values[k % len(vocab.values)].text.strip())


def _messages(place: Place, word: str, other: str) -> list[dict[str, str]]:
    order, newer = _ORDER.format(word=word), _ORDER.format(word=other)
    if place == "system":
        system = {"role": "system", "content": order}
        return [system, _user(f"{_BEFORE}\n\n{_AFTER}\n\n{_TASK}")]
    if place == "middle":
        return [_user(f"{_BEFORE}\n\n{order}\n\n{_AFTER}\n\n{_TASK}")]
    if place == "end":
        return [_user(f"{_BEFORE}\n\n{_AFTER}\n\n{_TASK}\n\n{order}")]
    return [_user(f"{_BEFORE}\n\n{order}\n\n{_AFTER}\n\n{_TASK}\n\n{newer}")]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def _ids(
    render: Render, tokenize: Tokenize, bos: tuple[int, ...], messages: list[dict[str, str]]
) -> tuple[int, ...]:
    (ids,) = await tokenize([await render({"messages": messages})])
    return (*bos, *ids)


def _ask(
    ids: tuple[int, ...],
    expected: str,
    item: int,
    place: int,
    tokens: int,
    candidates: tuple[str, ...] = (),
) -> Ask:
    name = f"talk|{place}|{tokens}|{','.join(map(str, ids))}"
    return Ask(
        id=hashlib.blake2b(name.encode(), digest_size=10).hexdigest(),
        prefix=(),
        suffix=ids,
        target=0,
        expected=expected,
        candidates=candidates or (expected,),
        arm=Arm.SCREEN,
        item=item,
        block=0,
        context=900 + place,
        pad=place,
        generate=tokens,
    )


__all__ = ["ORDERS", "ORDER_TOKENS", "PLACES", "STORIES", "STORY_TOKENS", "Talk", "prepared"]
