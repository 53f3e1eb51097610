"""The toy runtime: tokens, scores, counts and the prefix cache."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kvphase.errors import UsageError
from kvphase.runtimes.toy import (
    KEPT_PREFIXES,
    UNKNOWN,
    Scores,
    ToyEngine,
    ToyRuntime,
    ToyWords,
    toy_names,
)
from kvphase.types import Arm, Ask, Reply, Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WORDS = ToyWords.load()


@dataclass
class Memory:
    """The cache of `Lookup`: the ids seen so far."""

    ids: list[int] = field(default_factory=list)
    length: int = 0

    def fork(self) -> Memory:
        """Copy the ids."""
        return Memory(list(self.ids), self.length)


class Lookup:
    """A perfect model: after ``key :`` it names the value that stood behind that key before."""

    def __init__(self, context: int = 4096) -> None:
        self.config: dict[str, Any] = {"context_tokens": context}
        self.vocab_size = len(WORDS.tokens)
        self.local_window = 16
        self.evaluated = 0

    def start(self) -> Memory:
        """Begin with nothing."""
        return Memory()

    def extend(self, cache: Memory, ids: Sequence[int]) -> NDArray[np.float32]:
        """Score each place; no two tokens tie."""
        rows = np.zeros((len(ids), self.vocab_size), np.float32)
        for row, token in zip(rows, ids, strict=True):
            cache.ids.append(token)
            row[:] = np.sin(np.arange(self.vocab_size) + token)
            row[self._next(cache.ids)] += 4
        cache.length = len(cache.ids)
        self.evaluated += len(ids)
        return rows

    @staticmethod
    def _next(ids: list[int]) -> int:
        asked = ids[-2:]
        pairs = zip(ids, ids[1:], ids[2:], strict=False)
        return next((value for *pair, value in pairs if pair == asked), 2)


def ask(suffix: str, expected: str, *, arm: Arm = Arm.SCREEN, pad: int = 0, n: int = 1) -> Ask:
    prefix = "<s>" + " and" * pad + " cat: Alice; dog: Bob; cow: Carol;"
    ids = WORDS.encode(prefix, special=True), WORDS.encode(suffix)
    return Ask("x", tuple(ids[0]), tuple(ids[1]), 1, expected, (expected,), arm, 0, 0, 0, pad, n)


def answer(runtime: ToyRuntime, *asks: Ask) -> list[Reply]:
    async def run() -> list[Reply]:
        return [await runtime.complete(each) for each in asks]

    return asyncio.run(run())


@pytest.fixture
def model() -> Lookup:
    return Lookup()


@pytest.fixture
def runtime(model: Lookup) -> ToyRuntime:
    return ToyRuntime(ToyEngine("lookup", model, WORDS))


def test_longest_match_and_unknown_characters() -> None:
    ids = WORDS.encode(" cat: Alice;x")
    assert [WORDS.tokens[token] for token in ids[:-1]] == [" cat", ":", " Alice", ";"]
    assert ids[-1] == UNKNOWN == 2**31 - 1
    for text in WORDS.tokens[1:]:
        assert [WORDS.tokens[token] for token in WORDS.encode(text)] == [text]


def test_bos_is_special() -> None:
    assert WORDS.encode("<s> cat", special=True) == [WORDS.bos, WORDS.encode(" cat")[0]]
    assert WORDS.encode("<s>") == [UNKNOWN] * 3
    assert WORDS.decode([0, 3]) == "<s>" + WORDS.tokens[3]
    with pytest.raises(UsageError, match="between 0 and"):
        WORDS.decode([UNKNOWN])


def test_scores() -> None:
    logits = np.array([0.0, 3.0, 1.0, 3.0], np.float32)
    scores = Scores(logits)
    assert scores.best == 1
    assert scores.margin == 0
    assert math.isclose(float(np.exp(scores.logprobs).sum()), 1)
    assert [token for token, _ in scores.top(3)] == [1, 3, 2]
    assert scores.top(9)[0][1] == pytest.approx(3 - math.log(2 * math.exp(3) + math.e + 1))


def test_answers_and_true_counts(runtime: ToyRuntime, model: Lookup) -> None:
    first, second = answer(runtime, ask(" dog:", " Bob"), ask(" cat:", " Alice"))
    assert (first.text, second.text) == (" Bob", " Alice")
    assert (first.cached, first.prefilled) == (0, 15)
    assert (second.cached, second.prefilled) == (13, 2)
    assert model.evaluated == 17
    assert first.generated == 1
    assert first.margin is not None
    assert first.margin > 0
    assert first.logprob is not None
    assert first.logprob > math.log(0.1)


def test_cold_has_its_own_prefill(runtime: ToyRuntime, model: Lookup) -> None:
    warm, cold = answer(runtime, ask(" dog:", " Bob"), ask(" dog:", " Bob", arm=Arm.COLD))
    assert replace(cold, seconds=0) == replace(warm, seconds=0)
    assert (cold.cached, cold.prefilled) == (0, 15)
    assert model.evaluated == 30


def test_the_latest_prefixes_are_kept(runtime: ToyRuntime) -> None:
    pads = [*range(KEPT_PREFIXES), 0, KEPT_PREFIXES, 0, 1]
    replies = answer(runtime, *(ask(" dog:", " Bob", pad=pad) for pad in pads))
    assert [reply.cached for reply in replies[KEPT_PREFIXES:]] == [13, 0, 13, 0]


def test_prefix_without_suffix(runtime: ToyRuntime) -> None:
    whole = ask(" dog:", " Bob")
    alone = replace(whole, prefix=whole.prompt, suffix=())
    replies = answer(runtime, alone, alone)
    assert [reply.text for reply in replies] == [" Bob", " Bob"]
    assert [reply.cached for reply in replies] == [0, 15]


def test_several_answer_tokens(runtime: ToyRuntime) -> None:
    (reply,) = answer(runtime, ask(" dog:", " Bob", n=2))
    assert reply.text == " Bob;"
    assert reply.generated == 2


def test_asks_at_once_share_one_prefill(runtime: ToyRuntime, model: Lookup) -> None:
    async def run() -> list[Reply]:
        asks = [ask(f"{key}:", "x") for key in (" cat", " dog", " cow")]
        return list(await asyncio.gather(*map(runtime.complete, asks)))

    assert [reply.text for reply in asyncio.run(run())] == [" Alice", " Bob", " Carol"]
    assert model.evaluated == 13 + 3 * 2


def test_expectations_of_several_tokens_or_of_none(runtime: ToyRuntime) -> None:
    one, several, none = answer(
        runtime, ask(" dog:", " Bob"), ask(" dog:", " Bob;"), ask(" dog:", "?")
    )
    assert one.logprob == several.logprob is not None
    assert none.logprob is None


def test_tempting_answer_is_scored(runtime: ToyRuntime) -> None:
    plain = ask(" dog:", " Bob")
    tempted = replace(plain, candidates=(" Bob", " Alice"))
    without, reply = answer(runtime, plain, tempted)
    (other,) = answer(runtime, replace(plain, expected=" Alice"))
    assert without.against is None
    assert reply.against == other.logprob
    assert (reply.logprob or 0) > (reply.against or 0)


def test_alone_is_a_screen_ask_and_nobody_else_is_seen(runtime: ToyRuntime) -> None:
    screen, alone = answer(
        runtime, ask(" dog:", " Bob"), replace(ask(" dog:", " Bob"), arm=Arm.ALONE)
    )
    assert (alone.text, alone.logprob, alone.cached) == (screen.text, screen.logprob, 13)
    assert (runtime.traffic, runtime.lost_prefix) == (0, 0)


def test_refusals() -> None:
    small = ToyRuntime(ToyEngine("lookup", Lookup(context=15), WORDS))
    with pytest.raises(UsageError, match=r"15 tokens and an answer of 1 .* largest .* has 14"):
        answer(small, ask(" dog:", " Bob"))
    with pytest.raises(UsageError, match=r"does not know token 2147483647 \(index 13\)"):
        answer(small, ask("?", " Bob"))
    with pytest.raises(UsageError, match="empty"):
        answer(small, replace(ask("", " Bob"), prefix=()))
    with pytest.raises(UsageError, match="no chat template"):
        asyncio.run(small.template())


def test_names() -> None:
    with pytest.raises(UsageError, match="no toy model called 'w0s0'; available: "):
        ToyRuntime.load("w0s0")
    assert toy_names() == sorted(toy_names())


def test_description(runtime: ToyRuntime) -> None:
    assert isinstance(runtime, Runtime)
    assert runtime.about.toy
    assert runtime.about.target == runtime.about.model == "toy:lookup"
    assert runtime.limits.bos == (WORDS.bos,)
    assert runtime.limits.top_logprobs == len(WORDS.tokens)

    async def run() -> list[list[int]]:
        async with runtime as opened:
            return await opened.tokenize(["<s> cat", ""], special=True)

    assert asyncio.run(run()) == [WORDS.encode("<s> cat", special=True), []]


def test_what_is_known_of_the_model(runtime: ToyRuntime, model: Lookup) -> None:
    assert runtime.about.extra == {}
    model.config["compressor"] = {"name": "chunked", "window": 8, "stride": 4}
    assert runtime.about.extra["compression"] == "window 8, stride 4"
    model.config["compressor"] = {"name": "none"}
    assert runtime.about.extra["compression"] == "none: full attention"


@pytest.mark.parametrize("name", toy_names())
def test_shipped_toys_answer_the_same_cached_and_cold(name: str) -> None:
    toy = ToyRuntime.load(name)
    facts = "".join(
        f"{WORDS.tokens[key]}:{WORDS.tokens[value]};"
        for key, value in zip(range(3, 27), WORDS.values, strict=False)
    )
    prefix = (WORDS.bos, *WORDS.encode(facts))
    screen = [
        replace(ask("", WORDS.tokens[value]), prefix=prefix, suffix=(key, 1))
        for key, value in zip(range(3, 27, 4), WORDS.values[::4], strict=False)
    ]
    warm = answer(toy, *screen)
    cold = answer(toy, *(replace(each, arm=Arm.COLD) for each in screen))
    assert [reply.text for reply in warm] == [reply.text for reply in cold]
    for one, other in zip(warm, cold, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert other.cached == 0
    assert [reply.cached for reply in warm] == [0] + [97] * 5
    assert set(toy.about.extra) == {"compression", "parameters"}
