"""Writes page, card and figures of a run file to disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Catalogue, message
from kvphase.errors import UsageError
from kvphase.report import draw
from kvphase.report.card import card
from kvphase.report.document import run_document
from kvphase.report.facts import facts_of
from kvphase.report.figures import figures
from kvphase.report.page import page
from kvphase.report.shift_page import shift_page
from kvphase.report.theme import drawable
from kvphase.report.words import words
from kvphase.runs.check import load
from kvphase.runs.shift import is_shift, load_shift

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.catalogue import Language
    from kvphase.report.facts import PageFacts
    from kvphase.schema import VerdictFile

SCHEMA = "kvphase/report@1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where to write; None leaves a part out, and for the page means beside the run."""

    page: Path | None = None
    card: Path | None = None
    figures: Path | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, in the language of the report."""

    language: Language
    page: Path
    card: Path | None
    figures: tuple[Path, ...]
    verdict: str
    digest: str | None
    warnings: tuple[str, ...] = field(default=())

    def lines(self) -> list[str]:
        """A line a part, for a person."""
        say = Catalogue(self.language)
        lines = [say("report.page", path=self.page)]
        if self.card is not None:
            lines.append(say("report.card", path=self.card))
        if self.figures:
            folder = self.figures[0].parent
            lines.append(say("report.figures", n=len(self.figures), path=folder))
        return lines

    def as_json(self) -> str:
        """The same for a program: ``kvphase/report@1``."""
        values: dict[str, Any] = {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "digest": self.digest,
            "language": self.language,
            "page": str(self.page),
            "card": None if self.card is None else str(self.card),
            "figures": [str(path) for path in self.figures],
            "warnings": list(self.warnings),
        }
        return json.dumps(values, indent=2)


def write_report(run: Path, wanted: Wanted, language: Language) -> Written:
    """Read a run file and write its page, and card and figures where they are wanted.

    Files of an earlier report are replaced; a run file never is.

    Raises:
        UsageError: a path cannot be written, or is a run file.
        StoreError: the run file cannot be read.
    """
    target = wanted.page or run.with_name(run.name.removesuffix(".kvphase") + ".html")
    for path, suffix in ((target, ".html"), (wanted.card, ".png")):
        if path is not None:
            _check_file(path, suffix, run)
    if wanted.figures is not None and wanted.figures.exists() and not wanted.figures.is_dir():
        raise UsageError(message("report.not-a-folder", path=wanted.figures))
    if is_shift(run):
        return _write_shift(run, target, wanted, language)
    loaded = load(run)
    document = run_document(loaded)
    facts = facts_of(run, document, loaded)
    drawn: tuple[Path, ...] = ()
    if wanted.figures is not None:
        drawn = write_figures(document, facts, wanted.figures, language)
    if wanted.card is not None:
        write_aside(wanted.card, card(document, language))
    write_aside(target, page(document, facts, language).encode())
    return Written(
        language=language,
        page=target,
        card=wanted.card,
        figures=drawn,
        verdict=document.verdict,
        digest=document.digest,
        warnings=_no_font(language),
    )


def _write_shift(run: Path, target: Path, wanted: Wanted, language: Language) -> Written:
    """The page of a shift run; it has no card, and one figure that the page holds.

    Raises:
        UsageError: a card or figures are wanted.
    """
    if wanted.card is not None or wanted.figures is not None:
        raise UsageError(message("shift.page-only", name=run.name))
    loaded = load_shift(run)
    write_aside(target, shift_page(loaded, language).encode())
    return Written(
        language=language,
        page=target,
        card=None,
        figures=(),
        verdict=loaded.found.verdict,
        digest=None,
        warnings=_no_font(language),
    )


def _no_font(language: Language) -> tuple[str, ...]:
    return () if drawable(language) == language else (Catalogue("en")("report.no-font"),)


def write_figures(
    document: VerdictFile, facts: PageFacts, folder: Path, language: Language
) -> tuple[Path, ...]:
    """Every figure of the run as ``NAME.svg`` and ``NAME.png`` in a folder, made if need be."""
    said = words(document, drawable(language), facts.messages)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    written = []
    for name, figure in figures(said, facts).items():
        drawing = draw.svg(figure, said)
        for path, content in (
            (folder / f"{name}.svg", drawing.encode()),
            (folder / f"{name}.png", draw.png(drawing)),
        ):
            write_aside(path, content)
            written.append(path)
    return tuple(written)


def _check_file(path: Path, suffix: str, run: Path) -> None:
    """Whether a part may be written at ``path``.

    Raises:
        UsageError: it has another suffix, is a folder, is the run, or its folder does not exist.
    """
    if path.suffix.lower() != suffix:
        raise UsageError(message("report.suffix", path=path, suffix=suffix))
    if path.is_dir():
        raise UsageError(message("report.is-a-folder", path=path))
    if not path.parent.is_dir():
        raise UsageError(message("report.no-folder", path=path))
    if path.exists() and run.exists() and path.samefile(run):
        raise UsageError(message("report.the-run", path=path))


def write_aside(path: Path, content: bytes) -> None:
    """Write aside and move into place, so that a kill never leaves half a file.

    Raises:
        UsageError: it cannot be written.
    """
    aside = path.with_name(path.name + ".new")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(message("report.unwritable", path=path, why=error.strerror))
