"""A document in words: names, figures and sentences that page, figures and card share."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvphase.catalogue import Catalogue, Message
from kvphase.report.lines import clean
from kvphase.schema import VerdictFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvphase.catalogue import Language
    from kvphase.schema import LengthJson, PhaseJson

DOT = " \N{MIDDLE DOT} "


@dataclass(frozen=True, slots=True)
class Words:
    """Says a document in one language; every text it returns is free of control characters."""

    document: VerdictFile
    """Cleaned: see ``words``."""
    language: Language
    messages: Mapping[str, Message] = field(default_factory=dict)

    @property
    def say(self) -> Catalogue:
        """The catalogue in this language."""
        return Catalogue(self.language)

    def of(self, text: str) -> str:
        """A text of the document: translated where it is a known message, else as it is."""
        return clean(self.say.of(self.messages.get(text, text)))

    def known(self, section: str, name: str, **values: object) -> str | None:
        """The text ``section.name``, or None if the catalogue has none."""
        try:
            return self.say(f"{section}.{name}", **values)
        except KeyError:
            return None

    @property
    def model(self) -> str:
        """What was measured: the model's name, or the target's."""
        return self.document.model or self.document.target

    def verdict(self, name: str) -> str:
        """A verdict's name."""
        return self.say(f"verdict.name.{name}")

    def meaning(self) -> str:
        """The verdict in one sentence."""
        document, say = self.document, self.say
        name = document.verdict
        if name == "not-detected" and document.mde_pp is None:
            return say("page.verdict.not-detected-unknown")
        shifted = document.confirm.status if document.confirm else "follows-target"
        if name == "unreliable" and shifted != "follows-target":
            return say("page.verdict.unreliable-shifted")
        return say(f"page.verdict.{name}", period=document.period, mde=points(document.mde_pp))

    def rung(self, name: str) -> str:
        """A rung of the ladder as a reader calls it."""
        kind, _, tokens = name.partition("-")
        if kind == "needle" and tokens.isdecimal():
            return self.say("page.rung.needle", tokens=f"{int(tokens):,}")
        if kind in ("asis", "shifted"):
            return self.say(f"page.rung.{kind}")
        return self.known("page", f"rung.{name}") or name

    def design(self, name: str) -> str:
        """A design as a reader calls it."""
        return self.known("figure", f"design.{name}") or name

    def thinking(self) -> str:
        """Whether the model was asked inside its chat template, and with thinking or not."""
        document = self.document
        if document.thinking is None and document.template is None:
            return self.say("figure.thinking.unknown")
        if document.template in (None, "none"):
            return self.say("figure.thinking.completion")
        return self.say("figure.thinking.chat", thinking=self.switch(document.thinking))

    def switch(self, value: str | None) -> str:
        """``on`` and ``off`` in this language; anything else as it is."""
        return self.known("figure", f"switch.{value}") or value or "?"

    def settings(self) -> str:
        """Design, length and thinking: the second line of every figure."""
        document = self.document
        parts = [self.design(document.design)]
        if document.context_tokens is not None:
            parts.append(self.say("figure.tokens", tokens=f"{document.context_tokens:,}"))
        if document.records is not None:
            parts.append(self.say("figure.records", records=f"{document.records:,}"))
        parts.append(self.thinking())
        if document.partial:
            parts.append(self.say("figure.partial"))
        return DOT.join(parts)

    def phase(self, phase: PhaseJson | None) -> str:
        """``41.1% at residue 6``, or a dash."""
        if phase is None:
            return "\N{EN DASH}"
        return self.say("page.at", accuracy=percent(phase.accuracy), residue=phase.residue)

    def seconds(self, value: float | None) -> str | None:
        """A time in seconds, or in minutes where it is long; None stays None."""
        if value is None:
            return None
        if value < 120:
            return self.say("page.about.seconds.value", seconds=f"{value:.1f}")
        return self.say("page.about.minutes.value", minutes=f"{value / 60:.1f}")

    @property
    def found(self) -> bool:
        """Whether best and worst residue are more than luck, so that they deserve a colour."""
        return self.document.verdict in ("phase-sensitive", "aperiodic")

    @property
    def wide(self) -> bool:
        """Whether pictures need a font with Chinese characters."""
        return self.language == "zh" or columns(self.model) > len(self.model)

    def main(self) -> LengthJson | None:
        """The rung that the verdict rests on."""
        rungs = {length.rung: length for length in self.document.per_length}
        return rungs.get(self.document.rung)


def words(
    document: VerdictFile, language: Language, messages: Mapping[str, Message] | None = None
) -> Words:
    """Words for ``document``, each of its strings cleaned of control characters."""
    return Words(cleaned(document), language, messages or {})


def cleaned(document: VerdictFile) -> VerdictFile:
    """The document with ``clean`` applied to every string in it."""
    return VerdictFile.model_validate(_clean(document.model_dump(by_alias=True)))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(v) for v in value]
    return value


def percent(fraction: float) -> str:
    """A fraction as percent with one decimal."""
    return f"{100 * fraction:.1f}%".replace("-", "\N{MINUS SIGN}")


def points(value: float | None) -> str:
    """Percentage points with one decimal, or a dash."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:.1f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Percentage points with their sign, one decimal."""
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def span(counts: Iterable[int]) -> str:
    """The smallest and largest of some counts, or the one they all are."""
    known = sorted(counts)
    few, many = f"{known[0]:,}", f"{known[-1]:,}"
    return few if few == many else f"{few}\N{EN DASH}{many}"


def p_text(value: float | None) -> str:
    """A p value, or a dash."""
    return "\N{EN DASH}" if value is None else f"{value:.2g}"


def columns(text: str) -> int:
    """Width of ``text`` in columns: wide characters count two, combining ones none."""
    return sum(_columns(c) for c in text)


def shorten(text: str, most: int) -> str:
    """``text`` cut to ``most`` columns, with an ellipsis where something was left out."""
    if columns(text) <= most:
        return text
    kept, used = "", 1
    for character in text:
        used += _columns(character)
        if used > most:
            break
        kept += character
    return kept.rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def wrap(text: str, most: int, lines: int = 2) -> list[str]:
    """``text`` in at most ``lines`` lines of ``most`` columns; the last one is shortened.

    Breaks at spaces, after hyphens and between wide characters; a longer word is cut.
    """
    wrapped: list[str] = []
    rest = text
    while rest and len(wrapped) < lines - 1 and columns(rest) > most:
        cut = _cut(rest, most)
        wrapped.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*wrapped, shorten(rest, most)] if rest else wrapped


def _cut(text: str, most: int) -> int:
    """Where to break ``text`` so that the first part has at most ``most`` columns."""
    used, fits, good = 0, 1, 0
    for i, character in enumerate(text):
        used += _columns(character)
        if used > most:
            break
        fits = i + 1
        if character in " -" or (_columns(character) == 2 and _may_end(text[i + 1 : i + 2])):
            good = i + 1
    return good or fits


def _may_end(following: str) -> bool:
    """Whether a line may end before ``following``: closing punctuation never starts a line."""
    return following not in tuple("\uff0c\u3002\uff1b\uff1a\uff09\u3001\uff1f\uff01")


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


__all__ = [
    "DOT",
    "Words",
    "cleaned",
    "columns",
    "p_text",
    "percent",
    "points",
    "shorten",
    "signed",
    "span",
    "words",
    "wrap",
]
