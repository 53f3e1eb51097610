"""DeepSeek-V4's real tokenizer and chat encodings: one token a unit, wherever filler is put."""

from __future__ import annotations

import asyncio

import pytest

from kvphase.errors import UsageError
from kvphase.tokens import WordLists, survey
from kvphase.tokens.local import LocalTokenizer, load

BODIES = {
    "english": "The key to the cellar hangs behind the door. What hangs there?",
    "chinese": "钥匙挂在地下室的门后面。门后面挂着什么。",
    "digits": "8417 and 12345 and 3.14159 are 2026 numbers",
    "code": "def find(x):\n    return x[0] == 'a'\n",
}
UNITS = (" =", " .", " -", " the", " word", " hello", "\u7684", "\u6211", "\u662f")
"""Units of filler that are one token each, however often they are repeated."""
FUSING = (" =", " .", " -")
"""Those that fuse with a newline behind them."""


@pytest.fixture(scope="module")
def deepseek() -> LocalTokenizer:
    return load("deepseek-v4")


def ids(tokenizer: LocalTokenizer, text: str, *, special: bool = False) -> list[int]:
    return asyncio.run(tokenizer.tokenize([text], special=special))[0]


def body(thinking: bool, text: str, effort: str | None = None) -> dict[str, object]:
    settings = {"thinking": thinking} | ({"reasoning_effort": effort} if effort else {})
    return {"messages": [{"role": "user", "content": text}], "chat_template_kwargs": settings}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", BODIES)
def test_every_unit_moves_the_body_by_one(deepseek: LocalTokenizer, unit: str, name: str) -> None:
    alone = ids(deepseek, unit + "\n\n" + BODIES[name])
    for count in (2, 3, 4, 5, 8, 64, 1000):
        moved = ids(deepseek, unit * count + "\n\n" + BODIES[name])
        assert len(moved) == len(alone) + count - 1
        assert moved[count - 1 :] == alone


@pytest.mark.parametrize("unit", UNITS)
def test_newline_behind_a_unit(deepseek: LocalTokenizer, unit: str) -> None:
    apart = [*ids(deepseek, unit), *ids(deepseek, "\n")]
    assert (ids(deepseek, unit + "\n") != apart) == (unit in FUSING)


def test_digits_are_cut_in_threes_from_the_left(deepseek: LocalTokenizer) -> None:
    spelled = [deepseek.spell([token]) for token in ids(deepseek, "8417 12345678")]
    assert spelled == ["841", "7", " ", "123", "456", "78"]
    assert len(ids(deepseek, "====")) == 1


def test_every_filler_and_word_stays_apart(deepseek: LocalTokenizer) -> None:
    vocab = asyncio.run(survey(deepseek.tokenize))
    words = WordLists.load()
    assert len(vocab.phrases) == len(words.phrases)
    for name, text in BODIES.items():
        base = ids(deepseek, "\n\n" + text)
        for phrase in vocab.phrases:
            for count in (1, 2, len(phrase)):
                filler = phrase[:count]
                moved = ids(deepseek, "".join(word.text for word in filler) + "\n\n" + text)
                assert moved == [word.id for word in filler] + base, (name, filler)
    record = [vocab.keys[0], vocab.separator, vocab.values[0], vocab.terminator]
    for phrase in vocab.phrases:
        line = [*phrase, *record, *phrase, *record]
        assert ids(deepseek, "".join(word.text for word in line)) == [word.id for word in line]


@pytest.mark.parametrize("name", ["deepseek-v4", "deepseek-v4.1"])
@pytest.mark.parametrize(("thinking", "effort"), [(False, None), (True, "high"), (True, "max")])
def test_chat_template_shifts_as_a_whole(name: str, thinking: bool, effort: str | None) -> None:
    tokenizer = load(name)
    for text in BODIES.values():
        rendered = [
            ids(
                tokenizer,
                tokenizer.render(body(thinking, " the" * pad + "\n" + text, effort)),
                special=True,
            )
            for pad in range(1, 9)
        ]
        assert [len(line) - len(rendered[0]) for line in rendered] == list(range(8))
        (the,) = ids(tokenizer, " the")
        (user,) = ids(tokenizer, "<\uff5cUser\uff5c>", special=True)
        place = rendered[0].index(user) + 1
        for pad, line in enumerate(rendered):
            assert line == [*rendered[0][:place], *[the] * pad, *rendered[0][place:]]


def test_thinking_adds_79_or_92_tokens(deepseek: LocalTokenizer) -> None:
    sizes = {
        effort: len(ids(deepseek, deepseek.render(body(thinking, "hello", effort)), special=True))
        for thinking, effort in ((False, None), (True, "high"), (True, "max"))
    }
    assert {effort: size - sizes[None] for effort, size in sizes.items()} == {
        None: 0,
        "high": 79,
        "max": 92,
    }


def test_thinking_is_off_unless_asked_for(deepseek: LocalTokenizer) -> None:
    template = asyncio.run(deepseek.template())
    assert deepseek.bos == (0,)
    assert template.head_text == "<\uff5cUser\uff5c>"
    assert template.tail_text == "<\uff5cAssistant\uff5c></think>"
    assert (len(template.head), len(template.tail)) == (1, 2)


def test_special_tokens_in_a_users_text_stay_text(deepseek: LocalTokenizer) -> None:
    assert 0 not in ids(deepseek, deepseek.bos_text)
    assert ids(deepseek, deepseek.bos_text, special=True) == [0]


def test_messages_that_the_encoding_refuses(deepseek: LocalTokenizer) -> None:
    with pytest.raises(UsageError, match="refuses this"):
        deepseek.render({"messages": [{"role": "nobody", "content": "x"}]})
