"""The card: one picture, 1600 by 900 pixels, that says in a chat what was measured and found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvphase.report.draw import png
from kvphase.report.page import environment
from kvphase.report.tables import ends, kind_of
from kvphase.report.theme import LIGHT, drawable, drawn_font
from kvphase.report.words import DOT, columns, percent, points, shorten, words, wrap

if TYPE_CHECKING:
    from kvphase.catalogue import Language
    from kvphase.report.words import Words
    from kvphase.schema import VerdictFile

WIDTH, HEIGHT = 1600, 900
INNER = 1460
"""Pixels between the left and the right margin."""
_TONES = {"phase-sensitive": "#b04300", "not-detected": "#0b6b4f"}
_OTHER_TONE = "#3f5168"
_BAR = "#8795a8"
_EM, _TEXT_EM = 0.56, 0.5
"""Mean width of a bold and of a plain letter in font sizes, on the safe side."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 150, 1010, 436, 730
"""The curve's corner points."""
_MOST_LABELS = 8
_MOST_RESIDUES = 24


@dataclass(frozen=True, slots=True)
class Bar:
    """One residue's bar in pixels."""

    x: float
    """Of its left side."""
    width: float
    top: float
    low: float
    """Lower end of the interval."""
    high: float
    colour: str
    residue: str
    """Empty where there is no room for it."""
    value: str


def card(document: VerdictFile, language: Language) -> bytes:
    """The card as PNG; fixed texts are English where no font with Chinese is installed."""
    return png(drawing(document, drawable(language)), scale=1)


def drawing(document: VerdictFile, language: Language) -> str:
    """The card as SVG; every text of the document is cleaned, shortened and escaped."""
    said = words(document, language)
    document = said.document
    size = min(68.0, max(40.0, INNER / (_EM * max(1, columns(said.model)))))
    meaning, meaning_size = _meaning(said)
    return (
        environment()
        .get_template("card.svg.j2")
        .render(
            say=said.say,
            d=document,
            theme=LIGHT,
            font=drawn_font(chinese=said.wide),
            width=WIDTH,
            height=HEIGHT,
            left=_LEFT,
            right=_RIGHT,
            tone=_TONES.get(document.verdict, _OTHER_TONE),
            name=shorten(said.model, int(INNER / (_EM * size))),
            name_size=round(size),
            settings=wrap(_settings(said), int(INNER / (_TEXT_EM * 31)), lines=2),
            verdict=said.verdict(document.verdict),
            meaning=meaning,
            meaning_size=meaning_size,
            bars=bars(said),
            levels=[(level, _y(level / 100)) for level in (0, 50, 100)],
            mean=_y(document.mean),
            axis=said.say("card.axis", modulus=document.modulus),
            gap=points(_gap(said)),
            gap_label=said.say("card.gap.label" if _shows_gap(said) else "card.mde.label"),
            lines=_lines(said),
            foot=wrap(said.say("card.gap"), 78, lines=2),
            mark=_mark(said),
        )
    )


def _settings(said: Words) -> str:
    """Quantisation, runtime, length, thinking and number of answers."""
    document, say = said.document, said.say
    runtime = " ".join(filter(None, (document.runtime, document.build)))
    parts = [shorten(part, 30) for part in (document.quant, runtime) if part]
    labels = [shorten(f"{name}={value}", 24) for name, value in document.labels.items()]
    return DOT.join([*parts, *labels, said.settings(), say("card.answers", n=f"{document.n:,}")])


def _shows_gap(said: Words) -> bool:
    """Whether a gap stands large; where none was found, what would have been does."""
    return said.found or said.document.mde_pp is None


def _gap(said: Words) -> float:
    """The figure to show large: the gap, cross-fitted where it can be, since raw it flatters."""
    gap, mde = said.document.gap, said.document.mde_pp
    if not said.found and mde is not None:
        return mde
    return gap.raw_pp if gap.crossfit_pp is None or gap.ci95 is None else gap.crossfit_pp


def _meaning(said: Words) -> tuple[list[str], int]:
    """The verdict in a sentence, in at most two lines, and their font size."""
    text = said.meaning()
    size = 38 if columns(text) * 38 * _EM <= INNER else 33
    return wrap(text, int(INNER / (_EM * size)), lines=2), size


def _lines(said: Words) -> list[tuple[str, str]]:
    """What stands below the gap, and its colour."""
    document, say, gap = said.document, said.say, said.document.gap
    if said.found and gap.crossfit_pp is not None and gap.ci95 is not None:
        low, high = (points(end) for end in gap.ci95)
        raw = say("card.raw", raw=points(gap.raw_pp), null=points(gap.null_pp))
        lines = [(say("card.interval", low=low, high=high), LIGHT.muted), (raw, LIGHT.muted)]
    else:
        raw = say("card.raw", raw=points(gap.raw_pp), null=points(gap.null_pp))
        lines = [(raw, LIGHT.muted)]
    for key, phase, colour in (
        ("best", document.best, LIGHT.best),
        ("worst", document.worst, LIGHT.worst),
    ):
        if phase is not None:
            values = {"accuracy": percent(phase.accuracy), "residue": phase.residue}
            lines.append((say(f"card.{key}", **values), colour if said.found else LIGHT.ink))
    lines.append((say("card.mean", accuracy=percent(document.mean)), LIGHT.ink))
    if said.found and document.confirm and document.confirm.status == "follows-target":
        lines.append((say("card.confirmed"), LIGHT.ink))
    return lines


def _mark(said: Words) -> str:
    """Program, version and digest: what the picture can be checked by."""
    document = said.document
    digest = document.digest and shorten(document.digest, 20)
    return DOT.join(filter(None, (f"kvphase {document.kvphase}", digest)))


def bars(said: Words) -> list[Bar]:
    """A bar a residue; nothing where the curve has too many to be seen."""
    asked = [point for point in said.document.curve if point.n]
    if not asked:
        return []
    worst, best = ends({p.residue: p.accuracy for p in asked} if said.found else {})
    colours = {"worst": LIGHT.worst, "best": LIGHT.best, "other": _BAR}
    count = len(said.document.curve)
    slot = (_RIGHT - _LEFT) / count
    return [
        Bar(
            x=_LEFT + (point.residue + 0.14) * slot,
            width=0.72 * slot,
            top=_y(point.accuracy),
            low=_y(point.ci95[0]),
            high=_y(point.ci95[1]),
            colour=colours[kind_of(point.residue, worst, best)],
            residue=str(point.residue) if count <= _MOST_RESIDUES else "",
            value=f"{100 * point.accuracy:.0f}" if count <= _MOST_LABELS else "",
        )
        for point in asked
    ]


def _y(fraction: float) -> float:
    """The height of an accuracy in pixels from the top."""
    return _BOTTOM - fraction * (_BOTTOM - _TOP)
