"""Where a file's facts stand for this target, and filler that moves them, exact to the token."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import Message, message
from kvphase.errors import UsageError
from kvphase.probes.dataset import PlacedFact, Prompt
from kvphase.probes.fillers import FAMILIES
from kvphase.probes.formats import Unusable
from kvphase.probes.shift import BASE
from kvphase.runs.shift_place import UNKNOWN, Base, Rendered, head_sweeps, tail_sweep
from kvphase.runs.shift_source import Place, Source

if TYPE_CHECKING:
    from kvphase.probes.fillers import FamilyName
    from kvphase.probes.formats import Dataset, Item
    from kvphase.types import Runtime

MOST_ITEMS = 1000
"""Prompts of a file that are looked at, drawn at random; a histogram of more says no more."""
LARGEST_MODULUS = 16
"""Two cycles of it are as much filler as there is."""


@dataclass(frozen=True, slots=True)
class Located:
    """An item as the target reads it."""

    number: int
    """Its place in the random order: the seed of its filler."""
    item: Item
    source: Source
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Survey:
    """The items of a file in a random order, and those that this target cannot be asked."""

    located: tuple[Located, ...]
    unusable: tuple[Unusable, ...]
    drawn: int
    """Items looked at."""

    @property
    def positions(self) -> list[int]:
        """Of every fact, in its own prompt."""
        return [fact.target for one in self.located for fact in one.prompt.facts]

    @property
    def digest(self) -> str:
        """Of the tokens of all prompts: the fingerprint of tokenizer and template."""
        text = json.dumps([one.prompt.ids for one in self.located[:8]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def shifts_of(modulus: int) -> int:
    """Shifts at which each prompt is asked: two full cycles.

    Raises:
        UsageError: the modulus is too large.
    """
    if modulus > LARGEST_MODULUS:
        raise UsageError(message("dataset.modulus", modulus=modulus, most=LARGEST_MODULUS))
    return 2 * modulus


def source_of(item: Item, name: str, *, chat: bool) -> Source:
    """An item as a prompt to be padded; its first fact and all behind it must move together."""
    body, where = item.body, item.where
    if body is None and chat:
        body = {"messages": [{"role": "user", "content": item.texts[0]}]}
        where = ((0, -1),)
    first = min(item.facts, key=lambda fact: (fact.text, fact.begin))
    last = max(item.facts, key=lambda fact: (fact.text, fact.end))
    return Source(
        name=f"{name}:{item.line}",
        fields=item.texts,
        body=body,
        where=where,
        begin=Place(first.text, first.begin),
        end=Place(last.text, last.end),
    )


async def survey(
    runtime: Runtime, dataset: Dataset, seed: int, shifts: int, *, chat: bool
) -> Survey:
    """Every item (at most `MOST_ITEMS`) in random order with its facts' token positions.

    Raises:
        UsageError: none of the items can be asked; or the target renders no chat.
    """
    chats = [item.line for item in dataset.items if chat or item.body is not None]
    if chats and not hasattr(runtime, "render"):
        raise UsageError(message("dataset.no-chat", file=dataset.name, line=min(chats)))
    order = np.random.default_rng([seed, 0x6473]).permutation(len(dataset.items))[:MOST_ITEMS]
    rendered = Rendered(runtime)
    located: list[Located] = []
    bad: list[Unusable] = []
    for number, at in enumerate(order):
        item = dataset.items[at]
        source = source_of(item, dataset.name, chat=chat)
        try:
            prompt = await _prompt(runtime, rendered, item, source, shifts)
        except UsageError as error:
            bad.append(Unusable(item.line, _why(error)))
            continue
        located.append(Located(number, item, source, prompt))
    if not located:
        first = min(bad, key=lambda one: one.line)
        values = {"line": first.line, "count": len(bad), "why": first.why}
        raise UsageError(message("dataset.nothing", file=dataset.name, **values))
    return Survey(tuple(located), tuple(bad), len(order))


def _why(error: UsageError) -> Message:
    """The reason as it can be said in another language."""
    text = error.args[0]
    return text if isinstance(text, Message) else message("dataset.refused", why=str(text))


async def _prompt(
    runtime: Runtime, rendered: Rendered, item: Item, source: Source, shifts: int
) -> Prompt:
    """An item without filler.

    Raises:
        UsageError: it cannot be spelled or does not fit the context.
    """
    (ids,) = await rendered.ids([source])
    if max(ids) >= UNKNOWN:
        raise UsageError(message("dataset.unspelled", at=ids.index(max(ids))))
    answers = [answer for fact in item.facts for answer in fact.answers]
    generate = item.tokens or sum(await rendered.lengths(answers)) + item.room
    needed, most = len(ids) + BASE + shifts - 1 + generate, runtime.limits.context_tokens
    if needed > most:
        raise UsageError(message("dataset.too-long", n=len(ids), needed=needed, most=most))
    facts = [
        PlacedFact(fact, await rendered.index(source, Place(fact.text, fact.begin), ids))
        for fact in item.facts
    ]
    return Prompt(item.line, ids, tuple(facts), generate)


async def shifted(
    runtime: Runtime, one: Located, shifts: int, seed: int, *, tail: bool = False
) -> Prompt | None:
    """The prompt with filler at every shift before its facts, or (``tail``) behind them.

    Families of filler take turns from prompt to prompt, and so do their words: what one of them
    does to a model at one length is no pattern over the file.

    Returns:
        None where nothing can be put in without changing more than positions.
    """
    turn = one.number % len(FAMILIES)
    families: list[FamilyName] = [*FAMILIES[turn:], *FAMILIES[:turn]]
    rendered = Rendered(runtime)
    targets = [placed.target for placed in one.prompt.facts]
    base = Base(one.prompt.ids, min(targets), len(one.prompt.ids))
    words = seed + one.number // len(FAMILIES)
    if tail:
        behind = replace(base, target=max(targets))
        sweep = await tail_sweep(rendered, one.source, behind, families, shifts, words)
        return None if sweep is None else replace(one.prompt, tail=sweep.shifted)
    sweeps = await head_sweeps(rendered, one.source, base, families, shifts, words, 1)
    return replace(one.prompt, shifted=sweeps[0].shifted) if sweeps else None


__all__ = ["LARGEST_MODULUS", "Located", "Survey", "shifted", "shifts_of", "survey"]
