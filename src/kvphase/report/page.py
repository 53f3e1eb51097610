"""The page: one HTML file with everything in it, which asks nothing of the network."""

from __future__ import annotations

import shlex
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING

from kvphase.report import draw
from kvphase.report.figures import NAMES, figures
from kvphase.report.keys import key_figures
from kvphase.report.lines import clean
from kvphase.report.published import needle_figures
from kvphase.report.tables import Table
from kvphase.report.terminal import looks_line
from kvphase.report.theme import drawable
from kvphase.report.words import Words, p_text, percent, points, shorten, words

if TYPE_CHECKING:
    from jinja2 import Environment

    from kvphase.catalogue import Language
    from kvphase.report.draw import Spoken
    from kvphase.report.facts import PageFacts
    from kvphase.report.tables import Figure
    from kvphase.schema import VerdictFile

GLOSSARY = (
    *("token", "kv-cache", "window", "stride", "phase", "residue", "offset", "period", "gap"),
    *("prefill", "prefix-cache", "kv-head", "record", "spacer", "cold", "crossfit"),
)
SECTIONS = (
    *("curve", "lengths", "depth", "confirm", "published", "balance", "audit", "how"),
    *("means", "notes", "glossary", "again"),
)
_ANSWER = 60
"""Columns shown of a wrong answer."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure as the page embeds it; pictures are ``data:`` URLs."""

    figure: Figure
    sources: dict[str, str]
    """By variant: ``light``, ``dark``, ``light-narrow``, ``dark-narrow``."""
    png: str
    """As SVG in the page's language; as PNG in one that can be drawn here."""


def page(document: VerdictFile, facts: PageFacts, language: Language) -> str:
    """The whole page as HTML.

    Every text of a model, a server or a file is cleaned of control characters and escaped; the
    page forbids itself scripts and requests (its content security policy allows one style sheet
    and pictures inside the page).

    Args:
        document: What was found.
        facts: What was counted from the run file; ``PageFacts()`` where there is none.
        language: Of all fixed texts.
    """
    said = words(document, language, facts.messages)
    css = resources.files(__package__).joinpath("templates", "page.css").read_text("utf-8")
    shown = _shown(said, facts)
    template = environment().get_template("page.html.j2")
    return template.render(
        w=said,
        d=said.document,
        say=said.say,
        f=facts,
        shown=shown,
        sections=_sections(said, shown),
        headings={name: said.say(f"page.{name}.heading") for name in SECTIONS},
        texts=_texts(said, facts),
        means=_means(said),
        keys=key_figures(said),
        about=_about(said),
        audit=_audit(said),
        balance=_balance(said),
        looks=_looks(said),
        notes=_notes(said),
        wrong=_wrong(said, facts),
        commands=_commands(said, facts),
        glossary=[
            (said.say(f"page.glossary.{name}"), said.say(f"page.glossary.{name}.means"))
            for name in GLOSSARY
        ],
        source=needle_figures()["source"],
        css=css,
        policy=policy_for(css),
        points=points,
        percent=percent,
    )


def environment() -> Environment:
    """The templates; whatever they fill in is escaped, and a name that is not given is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("kvphase.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def policy_for(css: str) -> str:
    """A content security policy that allows this style sheet, pictures in the page, no more."""
    digest = b64encode(sha256(css.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _shown(said: Words, facts: PageFacts) -> dict[str, Shown | None]:
    """Every figure drawn in both themes and widths; None where there is no data for it."""
    language = drawable(said.language)
    other = figures(Words(said.document, language, said.messages), facts)
    drawn: dict[str, Shown | None] = dict.fromkeys(NAMES)
    for name, figure in figures(said, facts).items():
        plain = other[name] if language != said.language else figure
        drawn[name] = pictured(figure, said, plain, Words(said.document, language))
    return drawn


def pictured(figure: Figure, spoken: Spoken, plain: Figure, plainly: Spoken) -> Shown:
    """A figure drawn in both themes and widths, and as PNG.

    Args:
        figure: In the page's language.
        spoken: Of these words.
        plain: The same in a language that PNG files can be drawn in here.
        plainly: Of those words.
    """
    variants = draw.variants(figure, spoken)
    light = variants["light"] if plain is figure else draw.svg(plain, plainly)
    sources = {key: _data_url("image/svg+xml", svg.encode()) for key, svg in variants.items()}
    return Shown(figure, sources, _data_url("image/png", draw.png(light)))


def _data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def _sections(said: Words, shown: dict[str, Shown | None]) -> list[tuple[str, str]]:
    """Anchor and heading of every section that this run has, in order."""
    left_out = {name for name in ("lengths", "depth") if shown[name] is None}
    return [(name, said.say(f"page.{name}.heading")) for name in SECTIONS if name not in left_out]


def _texts(said: Words, facts: PageFacts) -> dict[str, str | None]:
    """Paragraphs that depend on what was found; None where there is nothing to say."""
    document, say = said.document, said.say
    texts: dict[str, str | None] = dict.fromkeys(("confirm", "tail", "how", "depth"))
    texts["looks"] = looks_line(document.looks, document.n, say, fresh=document.fresh)
    texts["how"] = said.known("page", f"how.{document.design}", modulus=document.modulus)
    counted = sum(cell.n for cell in facts.depth)
    if document.fresh and counted > document.n:
        texts["depth"] = say("page.depth.all", n=f"{counted:,}", later=f"{document.n:,}")
    if document.confirm is not None:
        texts["confirm"] = say(f"page.confirm.status.{document.confirm.status}")
        tail = document.confirm.tail
        if tail is not None:
            values = {
                "largest": points(tail.largest_pp),
                "upper": points(tail.upper_pp),
                "margin": points(tail.margin_pp),
            }
            texts["tail"] = say(f"page.tail.status.{tail.status}", **values)
    return texts


def _means(said: Words) -> list[str]:
    """What this run does and does not show."""
    names = ["one", "base", "quality", "gap", "task", "cause"]
    if said.document.rung == "imported":
        names[0] = "imported"
    if said.document.demo:
        names.insert(0, "toy")
    if said.document.verdict == "not-detected":
        names.append("nothing")
    return [said.say(f"page.means.{name}") for name in names]


def _about(said: Words) -> list[tuple[str, str]]:
    """Label and value of everything that identifies the measurement; unknowns are said to be."""
    document, say = said.document, said.say
    records = None if document.records is None else f"{document.records:,}"
    if records is not None and document.adapted:
        records = say("page.about.records.adapted", records=records)
    tokens = {
        name: say("page.unknown") if count is None else f"{count:,}"
        for name, count in document.tokens.model_dump().items()
    }
    told = any(count is not None for count in document.tokens.model_dump().values())
    context = document.context_tokens
    values = {
        "model": document.model,
        "target": document.target,
        "quant": document.quant,
        "runtime": " ".join(filter(None, (document.runtime, document.build))) or None,
        "template": said.thinking(),
        "design": said.design(document.design),
        "context": None if context is None else said.rung(f"needle-{context}"),
        "records": records,
        "asked": f"{document.n:,}",
        "contexts": f"{document.contexts:,}" if document.contexts else None,
        "tokens": say("page.about.tokens.value", **tokens) if told else None,
        "seconds": said.seconds(document.seconds),
        "seed": str(document.seed),
        "digest": document.digest,
        "version": document.kvphase,
    }
    return [
        (say(f"page.about.{name}"), value or say("page.unknown")) for name, value in values.items()
    ]


def _audit(said: Words) -> Table | None:
    """Repeats, cold and lone asks; None where nothing was asked twice."""
    audit, say = said.document.audit, said.say
    ways = {
        "repeat": (audit.repeated, audit.repeat_flips),
        "cold": (audit.cold, audit.cold_flips),
        "alone": (audit.alone, audit.alone_flips),
    }
    rows = tuple(
        (
            say(f"page.audit.{way}"),
            f"{asked:,}",
            f"{flips:,} ({percent(flips / asked)})",
            say(f"page.audit.{way}.means", near=audit.near_ties),
        )
        for way, (asked, flips) in ways.items()
        if asked
    )
    if not rows:
        return None
    heads = tuple(say(f"page.audit.{head}") for head in ("way", "asked", "flips", "means"))
    return Table(say("page.audit.table"), heads, rows)


def _balance(said: Words) -> Table | None:
    """Depth of the asked targets by residue; None where it is not known."""
    balance, say = said.document.balance, said.say
    if balance is None:
        return None
    columns = zip(balance.residue, balance.n, balance.mean_depth, balance.sd_depth, strict=True)
    rows = tuple((str(r), f"{n:,}", f"{mean:.4f}", f"{sd:.4f}") for r, n, mean, sd in columns)
    heads = (say("figure.column.residue"), say("figure.column.n"))
    return Table(
        say("page.balance.table"), (*heads, say("page.balance.mean"), say("page.balance.sd")), rows
    )


def _looks(said: Words) -> Table | None:
    """Looks that were taken while more answers were to come."""
    looks, say = said.document.looks, said.say
    if not looks:
        return None
    rows = tuple(
        (str(i), f"{look.n:,}", p_text(look.p_value), percent(look.weight))
        for i, look in enumerate(looks, 1)
    )
    heads = (say("page.looks.look"), say("figure.column.n"), say("figure.column.p"))
    return Table(say("page.looks.table"), (*heads, say("page.looks.weight")), rows)


def _notes(said: Words) -> list[str]:
    """Notes of the run, then those of its rungs that it does not repeat."""
    document = said.document
    notes = [*document.notes, *(note for rung in document.per_length for note in rung.notes)]
    return list(dict.fromkeys(notes))


def _wrong(said: Words, facts: PageFacts) -> Table | None:
    """The commonest wrong answers, cut and cleaned."""
    say = said.say
    if not facts.wrong:
        return None
    rows = tuple(
        (shorten(clean(wrong.text.strip()), _ANSWER) or say("page.wrong.empty"), f"{wrong.times:,}")
        for wrong in facts.wrong
    )
    caption = say("page.wrong.table", times=f"{facts.wrong_in_all:,}")
    return Table(caption, (say("page.wrong.text"), say("page.wrong.times")), rows)


def _commands(said: Words, facts: PageFacts) -> list[tuple[str, str]]:
    """What each command does, and the command."""
    target = shlex.quote(said.document.target)
    if said.document.rung == "imported":
        return [(said.say("page.again.imported"), f"kvphase analyze {target}")]
    run = shlex.quote(clean(facts.run or "RUN.kvphase"))
    held = said.document.dataset
    if held is not None:
        asked = f"kvphase check {target} --dataset {shlex.quote(clean(held.file))}"
        return [
            (said.say("page.again.dataset"), f"{asked} --seed {said.document.seed}"),
            (said.say("page.again.page"), f"kvphase report {run} --lang {said.language}"),
        ]
    return [
        (said.say("page.again.lead"), f"kvphase check {target} --like {run}"),
        (said.say("page.again.page"), f"kvphase report {run} --lang {said.language}"),
    ]
