"""What ``kvphase analyze`` does with samples that hold their prompts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from kvphase.catalogue import Catalogue, message
from kvphase.errors import UsageError
from kvphase.probes.imported import analyze
from kvphase.report.dataset import histogram, show_reasons
from kvphase.report.document import as_json, rows_document
from kvphase.report.lines import Glyphs, clean, console, show
from kvphase.report.terminal import show_verdict
from kvphase.report.unusable import by_reason
from kvphase.runs.samples import PlacedRows, place

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.catalogue import Message
    from kvphase.probes.samples import Samples


def analyze_samples(
    samples: Samples, tokenizer: Path | None, *, modulus: int, seed: int, json: bool
) -> None:
    """Place every sample, show the histogram, and give a verdict if the positions allow one.

    Raises:
        UsageError: no tokenizer was given, or the file is phase-locked.
    """
    if tokenizer is None:
        raise UsageError(message("dataset.give-tokenizer", file=samples.name))
    placed = place(samples, tokenizer, modulus)
    if not json:
        _show_placed(samples, placed)
    at = placed.residues.at
    if at is not None:
        values = {"modulus": at[0], "residue": at[1], "count": at[2], "n": placed.residues.n}
        raise UsageError(message("dataset.locked-results", file=samples.name, **values))
    found = analyze(placed.rows, modulus=modulus, seed=seed)
    found = replace(found, notes=(*_notes(placed), *found.notes))
    if json:
        known = placed.rotation_known
        typer.echo(as_json(rows_document(found, clean(samples.name), seed, rotation_known=known)))
        return
    out, say = console(sys.stdout), Catalogue.on(sys.stdout)
    out.print()
    show_verdict(found, out, say)


def _show_placed(samples: Samples, placed: PlacedRows) -> None:
    """What was read, what could not be placed, and the histogram."""
    out, say = console(sys.stdout), Catalogue.on(sys.stdout)
    kind = say(f"dataset.harness.{samples.harness}")
    n = placed.residues.n
    title = say("dataset.samples", file=clean(samples.name), harness=kind, n=n)
    show(out, title, "bold")
    show_reasons(by_reason((one.line, one.why) for one in placed.unusable), out, say)
    for m, counts in placed.residues.counts.items():
        show(out, say("dataset.histogram", modulus=m))
        for line in histogram(counts, Glyphs.of(out.encoding)):
            out.print(line, soft_wrap=True)


def _notes(placed: PlacedRows) -> list[Message]:
    """What a reader of the verdict should know of the rows."""
    notes = []
    if placed.unusable:
        every = len(placed.unusable) + placed.residues.n
        notes.append(message("dataset.note-unplaced", count=len(placed.unusable), n=every))
    if not placed.rotation_known:
        notes.append(message("dataset.note-rotation"))
    if placed.residues.spread == "uneven":
        notes.append(message("dataset.note-uneven-results", n=placed.residues.n))
    return notes
