"""The smallest thing that shows a finding: two requests whose answers should be equal and are not.

For causes that lie in the prompt (phase, the question's residue, length) these are two prompts that
differ in filler only, shrunk as long as the answers stay different. For causes that lie in the way
of asking, one prompt asked in two ways.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kvphase.causes.decode import TOKENS
from kvphase.causes.scene import MODULUS, is_own, padded
from kvphase.causes.screen import NUMBER
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvphase.causes.base import Exhibit, Finding
    from kvphase.causes.scene import Scene
    from kvphase.types import Ask, Flow

MOST_TRIES = 60
"""Shorter pairs that are tried at most; each is two prompts."""
MOST_ITEMS = 16
"""Questions that are moved to find one whose answer changes."""
SIZES = (256, 128, 64, 32, 16, 8)
"""Tokens that are taken out at once: multiples of ``MODULUS``, so that phases stay."""
IN_PROMPT = ("phase", "question", "length")
ORDER = (
    "repeatability",
    "cache",
    "split",
    "decode",
    "batch",
    "question",
    "phase",
    "length",
    "sampling",
)
"""Of several findings the first of these is shown."""

How = Literal["cold", "cached", "grown", "given", "beside", "sampled"]
_HOW: dict[Arm, How] = {
    Arm.SCREEN: "cached",
    Arm.REPEAT: "cached",
    Arm.COLD: "cold",
    Arm.SPLIT: "grown",
    Arm.DECODE: "given",
    Arm.TOGETHER: "beside",
    Arm.ALONE: "cached",
    Arm.SAMPLED: "sampled",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One of the two requests."""

    prompt: tuple[int, ...]
    prefix: int
    """Tokens of the prompt that are in the cache, or were put there first."""
    cut: int
    """Where a prompt that is prefilled in two pieces is cut."""
    how: How
    tokens: int
    """Answer tokens."""
    answer: str
    expected: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two requests that show ``cause``."""

    cause: str
    steps: tuple[Step, Step]
    shrunk_from: int | None = None
    """Tokens of the longer prompt before it was shrunk."""
    own: bool = False
    """The prompts are the user's."""


def top(findings: Sequence[Finding]) -> Finding | None:
    """The finding whose pair is kept."""
    shown = [f for f in findings if f.status == "found" and f.exhibits and f.cause in ORDER]
    return min(shown, key=lambda f: ORDER.index(f.cause), default=None)


def minimal(scene: Scene, finding: Finding) -> Flow[Pair | None]:
    """The smallest pair for a finding: shrunk where the prompt itself can be.

    Yields:
        Two prompts at a time, each evaluated from its start.

    Returns:
        None where moving does not change the answer any more.
    """
    if finding.cause not in IN_PROMPT:
        exhibit = min(finding.exhibits, key=lambda one: (is_own(one.first), len(one.first.prompt)))
        steps = _step(exhibit, 0), _step(exhibit, 1)
        return Pair(finding.cause, steps, own=is_own(exhibit.first))
    pair = (yield from _moved(scene)) if finding.cause == "phase" else finding.exhibits[0]
    if pair is None:
        return None
    sides = (_Side.of(pair.first), _Side.of(pair.second))
    texts = yield from _answers(sides, pair.first)
    if texts is None:
        return None
    whole = max(len(side.ids) for side in sides)
    sides, texts = yield from _shrunk(sides, texts, pair.first)
    first, second = (
        Step(side.ids, 0, 0, "cold", pair.first.generate, text, pair.first.expected)
        for side, text in zip(sides, texts, strict=True)
    )
    own = is_own(pair.first)
    return Pair(finding.cause, (first, second), whole, own)


def _shrunk(
    sides: _Sides, texts: tuple[str, str], ask: Ask
) -> Flow[tuple[_Sides, tuple[str, str]]]:
    """Take out piece after piece, the largest first, as long as the answers stay different.

    Source of the manner: A. Zeller and R. Hildebrandt, Simplifying and isolating failure-inducing
    input, IEEE Transactions on Software Engineering 28 (2002).
    """
    tries = 0
    for size in SIZES:
        cuts = _cuts(sides, size)
        while tries < MOST_TRIES and (cut := next(cuts, None)) is not None:
            tries += 1
            smaller = sides[0].without(*cut[0]), sides[1].without(*cut[1])
            got = yield from _answers(smaller, ask)
            if got is not None:
                sides, texts, cuts = smaller, got, _cuts(smaller, size)
    return sides, texts


def _step(exhibit: Exhibit, which: int) -> Step:
    ask = (exhibit.first, exhibit.second)[which]
    how = _HOW[ask.arm]
    tokens = TOKENS if how == "given" else ask.generate
    prefix = 0 if how == "cold" else len(ask.prefix)
    return Step(ask.prompt, prefix, ask.cut, how, tokens, exhibit.answers[which], ask.expected)


def _moved(scene: Scene) -> Flow[Exhibit | None]:
    """A question of the screen that is right behind some filler and wrong behind other."""
    from kvphase.causes.base import Exhibit
    from kvphase.causes.flips import rows

    content = scene.content(NUMBER)
    for ask in content.asks[:MOST_ITEMS]:
        moved = [
            _whole(one.prompt, one, one.target, head)
            for head in range(2 * MODULUS)
            for one in padded(scene, content, head, 0, [ask], Arm.SHIFT)
        ]
        answers = yield moved
        by_pad = [rows(answers, Arm.SHIFT, pad) for pad in range(len(moved))]
        told = [(pad, next(iter(row.values()))) for pad, row in enumerate(by_pad) if row]
        right = [pad for pad, row in told if row.correct]
        wrong = [pad for pad, row in told if not row.correct]
        if right and wrong:
            first = right[0]
            second = min(wrong, key=lambda pad: abs(pad - first))
            texts = dict(told)
            return Exhibit(moved[first], moved[second], (texts[first].text, texts[second].text))
    return None


def _whole(ids: tuple[int, ...], ask: Ask, target: int, pad: int) -> Ask:
    """A prompt of its own, evaluated from its start; its pad tells it from its fellows."""
    name = f"whole|{pad}|{ask.generate}|{','.join(map(str, ids))}"
    new = hashlib.blake2b(name.encode(), digest_size=10).hexdigest()
    return replace(ask, id=new, prefix=(), suffix=ids, target=target, arm=Arm.SHIFT, pad=pad)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two prompts, and where its target and question are."""

    ids: tuple[int, ...]
    target: int
    question: int

    @classmethod
    def of(cls, ask: Ask) -> _Side:
        question = len(ask.prompt) if ask.question is None else ask.question
        return cls(ask.prompt, ask.target, question)

    def without(self, start: int, stop: int) -> _Side:
        """The same less the tokens ``start .. stop - 1``."""
        gone = stop - start
        target = self.target - gone if stop <= self.target else self.target
        return _Side(self.ids[:start] + self.ids[stop:], target, self.question - gone)


_Sides = tuple[_Side, _Side]


def _cuts(sides: _Sides, size: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The same ``size`` tokens in both prompts, counted from the target: before it, then behind."""
    least = min(side.target for side in sides)
    # The first token may be BOS; what differs between the two is the filler at their starts.
    for end in range(0, least - 1 - size, size):
        yield tuple((s.target - end - size, s.target - end) for s in sides)  # type: ignore[misc]
    behind = min(side.question - side.target for side in sides)
    for start in range(4, behind - size, size):
        yield tuple((s.target + start, s.target + start + size) for s in sides)  # type: ignore[misc]


def _answers(sides: _Sides, ask: Ask) -> Flow[tuple[str, str] | None]:
    """Both answers, if they still differ and the first one is right; else None."""
    asks = [_whole(side.ids, ask, side.target, pad) for pad, side in enumerate(sides)]
    answers = yield asks
    told = {int(pad): k for k, pad in enumerate(answers.pad)}
    if len(told) < 2:
        return None
    first, second = told[0], told[1]
    if answers.correct[first] != 1 or answers.correct[second] != 0:
        return None
    return str(answers.text[first]), str(answers.text[second])


__all__ = ["Pair", "Step", "minimal", "top"]
