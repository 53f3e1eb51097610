"""Filler for a user's own prompt, of any length in tokens: four families in two languages.

A family is a list of styles; a style is a list of texts of growing length. Which text is how many
tokens long is the tokenizer's business: the shortest that fits is looked for. No filler repeats a
sentence: one of four tokens repeated would itself have a period of four.
"""

from __future__ import annotations

from typing import Literal

from kvphase.tokens.words import WordLists

FamilyName = Literal["neutral", "equals", "polite", "blank"]
FAMILIES: tuple[FamilyName, ...] = ("neutral", "equals", "polite", "blank")
LONGEST = 44
"""Words or units of the longest text."""
OPENING = 4
"""Phrases one of which comes first; all of them are in the toys' vocabulary."""
_POLITE = (
    "thank you very much for your help with this please take all the time that you need and read "
    "everything with care before you give your answer I would be most grateful for it and I wish "
    "you a very good day"
)
_CHINESE = {
    "neutral": (
        "今天天气不错我们先随便说几句闲话后面才是正文昨天下午大家一起去河边走了很久"
        "回来的时候天已经快要黑了路上没有什么人只有风吹过树叶的声音"
    ),
    "polite": (
        "非常感谢您的帮助请您慢慢看不用着急看完之后再回答就好麻烦您费心了"
        "如果有什么不方便的地方也请多多包涵祝您一切顺利身体健康万事如意"
    ),
}
_LAST = ("", " and", " so", " now", " the", " too")
_LAST_CHINESE = ("", "的", "我", "是", "了")


def styles(
    family: FamilyName, *, chinese: bool, comment: str, block: bool, seed: int
) -> list[list[str]]:
    """Texts of each style of a family, shortest first; a style is used whole or not at all.

    Args:
        family: Its name.
        chinese: The prompt is in Chinese.
        comment: What opens a comment in this prompt.
        block: The filler stands between paragraphs, else inside a line.
        seed: Which phrase comes first.
    """
    if family == "equals":
        return _equals(comment, block=block, chinese=chinese)
    if family == "blank":
        return _blank(comment, block=block)
    if chinese:
        return _chinese(_CHINESE[family], block=block)
    return _words(_neutral(seed) if family == "neutral" else _POLITE.split(), block=block)


def _neutral(seed: int) -> list[str]:
    """Phrases in their order, one of the first few at the start."""
    phrases = ["".join(words).split() for words in WordLists.load().phrases]
    start = seed % OPENING
    turned = [*phrases[start:OPENING], *phrases[:start], *phrases[OPENING:]]
    return [word for phrase in turned for word in phrase]


def _words(words: list[str], *, block: bool) -> list[list[str]]:
    """A sentence that may end anywhere, or bare words as they stand inside a line."""
    made: list[list[str]] = []
    for closing in (".\n\n", ".\n") if block else (". ", ".", ""):
        texts = [
            (" ".join(words[:n]).capitalize() + last + closing)
            for n in range(1, LONGEST)
            for last in _LAST
        ]
        if not block:
            texts = [f" {text[0].lower()}{text[1:]}" for text in texts] if closing else []
        made.append(texts)
    made.append([" " + " ".join(words[:n]) for n in range(1, LONGEST)])
    return [texts for texts in made if texts]


def _chinese(text: str, *, block: bool) -> list[list[str]]:
    closings = ("。\n\n", "。\n") if block else ("。", "")
    return [
        [text[:n] + last + closing for n in range(1, len(text)) for last in _LAST_CHINESE]
        for closing in closings
    ]


def _equals(comment: str, *, block: bool, chinese: bool) -> list[list[str]]:
    """Equals signs in a comment, each with its space: without one they would merge."""
    label = " 分隔线" if chinese else ""
    if not block:
        return [[f" {'= ' * n}".rstrip() for n in range(1, LONGEST)]]
    return [
        [f"{comment}{label}{' =' * n}{closing}" for n in range(1, LONGEST)]
        for closing in ("\n\n", "\n", " \n")
    ]


def _blank(comment: str, *, block: bool) -> list[list[str]]:
    """Comment lines with nothing in them; the last may differ, to come out even."""
    if not block:
        return []
    lasts = ("", f"{comment}{comment[0]}\n", f"{comment} \n", f"{comment} {comment}\n", "\n")
    return [
        [f"{comment}\n" * n + last + closing for n in range(1, LONGEST) for last in lasts]
        for closing in ("\n", "")
    ]
