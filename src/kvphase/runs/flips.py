"""Places the flip's prompts with the model's own tokenizer, and drops those it will not keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes import flip
from kvphase.probes.flip import HEAD, MARGIN, SHIFTS, FlipPlan, FlipPrompt, Passage, Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.types import Runtime, Vocab

WINDOW = 128
"""Local window assumed where the runtime does not know it (DeepSeek-V4's)."""


async def plan_flip(runtime: Runtime, vocab: Vocab, seed: int) -> FlipPlan:
    """The written prompts that this tokenizer keeps apart; lookups if too few of them are left.

    Raises:
        UsageError: not even lookups can be placed, or the model's context is too short.
    """
    window = WINDOW if runtime.limits.local_window is None else runtime.limits.local_window
    between = window + MARGIN
    words = flip.fillers(vocab, between + SHIFTS, seed)
    placed = await _placed(runtime, flip.passages(), words, between)
    if len(placed) >= flip.FEWEST:
        return FlipPlan(placed, seed)
    own = await _placed(runtime, flip.lookups(vocab, seed), words, between)
    if len(own) < flip.FEWEST:
        raise UsageError(message("flip.unplaced"))
    return FlipPlan(own, seed, own_words=True)


async def _placed(
    runtime: Runtime, passages: Sequence[Passage], words: Sequence[str], between: int
) -> tuple[FlipPrompt, ...]:
    made = [await _place(runtime, passage, words, between) for passage in passages]
    return tuple(prompt for prompt in made if prompt is not None)


async def _place(
    runtime: Runtime, passage: Passage, words: Sequence[str], between: int
) -> FlipPrompt | None:
    """One passage at every shift, or None where a shift is not exactly one token."""
    texts = [flip.text_at(passage, words, HEAD + s, between) for s in range(SHIFTS)]
    texts += [flip.text_at(passage, words, HEAD, between + s) for s in range(SHIFTS)]
    starts = [passage.start("".join(words[: HEAD + s])) for s in range(SHIFTS)]
    answers = [texts[0] + text for pair in passage.answers for text in pair]
    ids = await runtime.tokenize([*texts, *starts, *answers, passage.question])
    whole, rest = ids[: 2 * SHIFTS], ids[2 * SHIFTS :]
    start, answered, question = rest[:SHIFTS], rest[SHIFTS:-1], rest[-1]
    pair = _pair(passage, whole[0], answered)
    limit = runtime.limits.context_tokens - len(runtime.limits.bos) - 1
    if pair is None or len(whole[0]) + SHIFTS > limit or not _exact(whole):
        return None
    bos = runtime.limits.bos
    size = len(question)
    targets = [_common(whole[s], start[s]) for s in range(SHIFTS)]
    targets += [targets[0]] * SHIFTS
    places = [
        Placed(
            ids=(*bos, *tokens),
            target=len(bos) + target,
            question=len(bos) + len(tokens) - size,
        )
        for tokens, target in zip(whole, targets, strict=True)
    ]
    return FlipPrompt(
        passage.name, passage.kind, *pair, tuple(places[:SHIFTS]), tuple(places[SHIFTS:])
    )


def _pair(
    passage: Passage, prompt: list[int], answered: Sequence[list[int]]
) -> tuple[str, str] | None:
    """The first pair of answers that are one token each after the prompt, and differ."""
    for number, pair in enumerate(passage.answers):
        right, wrong = answered[2 * number], answered[2 * number + 1]
        single = all(ids[:-1] == prompt for ids in (right, wrong))
        if single and right != wrong:
            return pair
    return None


def _exact(whole: Sequence[list[int]]) -> bool:
    """Whether every shift is one token longer and changes nothing behind its filler."""
    first = whole[0]
    heads, tails = whole[:SHIFTS], whole[SHIFTS:]
    rest = len(first) - HEAD - 2  # behind the head's filler, whatever opens it
    for shift, ids in enumerate(heads):
        if len(ids) != len(first) + shift or ids[-rest:] != first[-rest:]:
            return False
    return all(len(ids) == len(first) + shift for shift, ids in enumerate(tails))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
