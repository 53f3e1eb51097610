"""Results that somebody else measured: a file in, a verdict out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.table import listed, quoted, read_table, shown
from kvphase.stats import measure, measure_counts
from kvphase.stats.counts import MOST_ANSWERS
from kvphase.types import Answers, Arm, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from kvphase.probes.table import Line

NAMES: Mapping[str, tuple[str, ...]] = {
    "position": (
        "position", "pos", "token_position", "target_position", "key_position", "t_k", "t", "index",
        "pad", "padding", "shift",
    ),
    "correct": (
        "correct", "is_correct", "right", "hit", "hits", "success", "successes", "match", "ok",
        "score",
    ),
    "cluster": ("cluster", "context", "group", "prompt", "document", "doc", "sample"),
    "residue": ("residue", "phase", "r"),
    "n": ("n", "count", "total", "trials", "asked"),
}  # fmt: skip
"""Column names that are recognised without being named, best first; case does not matter."""

TRUTH = {"0": 0, "1": 1, "true": 1, "false": 0, "0.0": 0, "1.0": 1}
LARGEST = 2**53
BLOCK = 24
ROWS_PER_PAD = 4
"""Rows for each distinct position from which a file counts as a padding sweep."""
MOST_PADS = 512
MOST_SWEEP_CONTEXTS = 48


@dataclass(frozen=True, slots=True)
class ImportedRows:
    """One row an answer; every array has shape (n,)."""

    position: NDArray[np.int64]
    correct: NDArray[np.int8]
    cluster: NDArray[np.int64] | None
    """Labels 0..k-1, or None where the file has no such column."""
    source: str = field(default="results", compare=False)
    """The file, to speak of it."""


@dataclass(frozen=True, slots=True)
class ImportedCounts:
    """One row a residue."""

    residue: tuple[int, ...]
    n: tuple[int, ...]
    correct: tuple[int, ...]


def read_results(
    path: Path,
    *,
    position: str | None = None,
    correct: str | None = None,
    cluster: str | None = None,
    residue: str | None = None,
    n: str | None = None,
) -> ImportedRows | ImportedCounts:
    """Read a CSV or JSONL file of answers or of counts.

    One row an answer needs ``position`` and ``correct`` (0, 1, true or false), one row a residue
    needs ``residue``, ``n`` and ``correct``. Columns are recognised by usual names; the arguments
    name them where they are called something else. A file that fits both is read as counts. The
    CSV delimiter is found out; any line ends will do.

    Args:
        path: Text in UTF-8, or in UTF-16 with a byte order mark.
        position: Column of the target's token position.
        correct: Column of what was right.
        cluster: Column of what the rows of one prompt have in common.
        residue: Column of the residue, for counts.
        n: Column of the answers at a residue, for counts.

    Raises:
        UsageError: the file cannot be read, or what is wrong in it, with the line's number.
    """
    columns, lines = read_table(path)
    named = {
        "position": position,
        "correct": correct,
        "cluster": cluster,
        "residue": residue,
        "n": n,
    }
    found = {role: _column(path, columns, role, name) for role, name in named.items()}
    if not lines:
        raise UsageError(message("error.file-no-rows", file=shown(path)))
    if found["residue"] and found["n"] and found["correct"] and not position:
        return _counts(path, lines, found)
    if found["position"] and found["correct"]:
        return _rows(path, lines, found)
    raise UsageError(message("error.file-columns", file=shown(path), columns=listed(columns)))


def analyze(
    results: ImportedRows | ImportedCounts,
    *,
    modulus: int = 8,
    alpha: float = 0.005,
    detect_pp: float = 10.0,
    seed: int = 0,
) -> Verdict:
    """A verdict on imported results.

    Counts go to ``measure_counts``; their number of residues is the modulus. Rows know nothing of
    the design that made them, so they are taken as one of two:

    - Many rows at few positions (four or more a position on average) are a padding sweep: each
      (cluster, position) is one unit, linear and quadratic terms of the position are taken out,
      and divisors of ``modulus`` are candidates.
    - Anything else is a screen. Blocks are 24 rows in a row by position inside a cluster: among
      neighbours, accuracy that drifts with depth is nearly constant, whatever the design was,
      while their residues still differ. Clusters of fewer than two rows on average leave nothing
      to permute and are ignored; the verdict's notes say so.

    Raises:
        UsageError: all positions share one residue modulo ``modulus``.
    """
    if isinstance(results, ImportedCounts):
        return measure_counts(
            results.residue,
            results.n,
            results.correct,
            alpha=alpha,
            detect_pp=detect_pp,
            seed=seed,
        )
    residues = np.unique(results.position % modulus)
    if len(residues) < 2:
        at = {"file": results.source, "residue": int(residues[0]), "modulus": modulus}
        raise UsageError(message("error.phase-locked", **at))
    sweep = is_sweep(results.position)
    answers, notes = _as_sweep(results) if sweep else _as_screen(results)
    verdict = measure(
        answers,
        kind="prefix" if sweep else "insequence",
        modulus=modulus,
        alpha=alpha,
        detect_pp=detect_pp,
        seed=seed,
    )
    return replace(verdict, notes=(*notes, *verdict.notes))


def is_sweep(position: NDArray[np.int64]) -> bool:
    """Whether rows stand at so few positions (shape (n,)) that they come from a padding sweep."""
    distinct = len(np.unique(position))
    return distinct <= MOST_PADS and len(position) >= ROWS_PER_PAD * distinct


def _as_sweep(rows: ImportedRows) -> tuple[Answers, tuple[str, ...]]:
    """One context a cluster; clusters beyond 48 share contexts, which keeps the fit small."""
    n = len(rows.position)
    context = np.zeros(n, dtype=np.int64) if rows.cluster is None else rows.cluster
    return (
        _answers(
            rows,
            context=context % MOST_SWEEP_CONTEXTS,
            block=np.zeros(n, dtype=np.int64),
            pad=rows.position - rows.position.min(),
        ),
        (message("note.sweep"),),
    )


def _as_screen(rows: ImportedRows) -> tuple[Answers, tuple[str, ...]]:
    """Blocks of neighbours by position inside clusters."""
    n = len(rows.position)
    context = np.zeros(n, dtype=np.int64) if rows.cluster is None else rows.cluster
    notes = [message("note.neighbours", block=BLOCK)]
    if rows.cluster is not None and n < 2 * len(np.unique(context)):
        context = np.zeros(n, dtype=np.int64)
        notes.append(message("note.clusters-ignored"))
    order = np.lexsort((rows.position, context))
    sorted_context = context[order]
    _, first, inverse = np.unique(sorted_context, return_index=True, return_inverse=True)
    block = np.empty(n, dtype=np.int64)
    block[order] = (np.arange(n) - first[inverse.reshape(-1)]) // BLOCK
    return (
        _answers(rows, context=context, block=block, pad=np.zeros(n, dtype=np.int64)),
        tuple(notes),
    )


def _answers(
    rows: ImportedRows,
    *,
    context: NDArray[np.int64],
    block: NDArray[np.int64],
    pad: NDArray[np.int64],
) -> Answers:
    n = len(rows.position)
    return Answers(
        position=rows.position,
        correct=rows.correct,
        logprob=np.full(n, np.nan),
        item=np.arange(n),
        block=block,
        context=context,
        pad=pad,
        arm=np.full(n, Arm.SCREEN.value),
        text=np.full(n, ""),
        margin=np.full(n, np.nan),
        question=np.full(n, -1),
        against=np.full(n, np.nan),
    )


def _column(path: Path, columns: Sequence[str], role: str, name: str | None) -> str | None:
    """The column that plays a role: the one named, or the first with a usual name."""
    if name is not None:
        if name not in columns:
            at = {"file": shown(path), "column": quoted(name), "columns": listed(columns)}
            raise UsageError(message("error.file-column", **at))
        return name
    for usual in NAMES[role]:
        for column in columns:
            if column.lower() == usual:
                return column
    return None


def _rows(path: Path, lines: Sequence[Line], found: Mapping[str, str | None]) -> ImportedRows:
    position = np.array([_integer(line, found["position"]) for line in lines], dtype=np.int64)
    correct = np.array([_truth(line, found["correct"]) for line in lines], dtype=np.int8)
    if len(np.unique(position)) < 2:
        raise UsageError(message("error.file-one-position", file=shown(path)))
    cluster = None
    if found["cluster"]:
        names = [line.cell(found["cluster"]) for line in lines]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        cluster = np.array([numbers[name] for name in names], dtype=np.int64)
    return ImportedRows(position, correct, cluster, source=shown(path))


def _counts(path: Path, lines: Sequence[Line], found: Mapping[str, str | None]) -> ImportedCounts:
    seen: dict[int, tuple[int, int]] = {}
    for line in lines:
        residue = _integer(line, found["residue"])
        n, correct = _integer(line, found["n"]), _integer(line, found["correct"])
        if residue in seen:
            raise line.fault("file-residue-twice", residue=residue)
        if correct > n:
            raise line.fault("file-right", right=correct, n=n)
        seen[residue] = (n, correct)
    _must_be_a_cycle(path, seen)
    return ImportedCounts(
        tuple(seen), tuple(n for n, _ in seen.values()), tuple(c for _, c in seen.values())
    )


def _must_be_a_cycle(path: Path, seen: Mapping[int, tuple[int, int]]) -> None:
    """What `measure_counts` would refuse, said with the file's name."""
    name = shown(path)
    if len(seen) < 2:
        raise UsageError(message("error.file-one-residue", file=name))
    low, high = min(seen), max(seen)
    if high - low + 1 != len(seen):
        raise UsageError(message("error.file-holes", file=name, low=low, high=high))
    total = sum(n for n, _ in seen.values())
    if total >= MOST_ANSWERS:
        at = {"file": name, "total": total, "most": MOST_ANSWERS}
        raise UsageError(message("error.file-many", **at))


def _integer(line: Line, column: str | None) -> int:
    """A cell that must be a whole number of at least 0."""
    cell = line.cell(column)
    try:
        value = float(cell)
    except ValueError:
        raise line.fault("file-number", column=shown(column), cell=quoted(cell)) from None
    if not (0 <= value < LARGEST and value == int(value)):
        raise line.fault("file-whole", column=shown(column), cell=quoted(cell))
    return int(value)


def _truth(line: Line, column: str | None) -> int:
    """A cell that must be 0, 1, true or false."""
    cell = line.cell(column)
    if cell.lower() not in TRUTH:
        raise line.fault("file-truth", column=shown(column), cell=quoted(cell))
    return TRUTH[cell.lower()]
