"""Results that somebody else measured: a file in, a verdict out."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.errors import UsageError
from kvphase.stats import measure, measure_counts
from kvphase.types import Answers, Arm, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

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

DELIMITERS = ",;\t|"
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


@dataclass(frozen=True, slots=True)
class ImportedCounts:
    """One row a residue."""

    residue: tuple[int, ...]
    n: tuple[int, ...]
    correct: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """One record of a file and where it stands."""

    number: int
    cells: Mapping[str, str]


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
    CSV delimiter is found out; a byte order mark and any line ends will do.

    Args:
        path: UTF-8 text.
        position: Column of the target's token position.
        correct: Column of what was right.
        cluster: Column of what the rows of one prompt have in common.
        residue: Column of the residue, for counts.
        n: Column of the answers at a residue, for counts.

    Raises:
        UsageError: the file cannot be read, or what is wrong in it, with the line's number.
    """
    columns, lines = _parse(path, _text(path))
    named = {
        "position": position,
        "correct": correct,
        "cluster": cluster,
        "residue": residue,
        "n": n,
    }
    found = {role: _column(path, columns, role, name) for role, name in named.items()}
    if not lines:
        raise UsageError(f"{path} holds column names but no results.")
    if found["residue"] and found["n"] and found["correct"] and not position:
        return _counts(lines, found)
    if found["position"] and found["correct"]:
        return _rows(path, lines, found)
    raise UsageError(
        f"{path} has no usable columns: needed are position and correct, or residue, n and "
        f"correct; found: {', '.join(columns)}."
    )


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
        raise UsageError(
            f"All positions have residue {int(residues[0])} modulo {modulus}: there is no other "
            "phase to compare with."
        )
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
    note = (
        "Read as a padding sweep: few positions with many answers each; linear and quadratic "
        "trends along the positions are taken out."
    )
    return (
        _answers(
            rows,
            context=context % MOST_SWEEP_CONTEXTS,
            block=np.zeros(n, dtype=np.int64),
            pad=rows.position - rows.position.min(),
        ),
        (note,),
    )


def _as_screen(rows: ImportedRows) -> tuple[Answers, tuple[str, ...]]:
    """Blocks of neighbours by position inside clusters."""
    n = len(rows.position)
    context = np.zeros(n, dtype=np.int64) if rows.cluster is None else rows.cluster
    notes = [f"Answers are compared among {BLOCK} neighbours by position."]
    if rows.cluster is not None and n < 2 * len(np.unique(context)):
        context = np.zeros(n, dtype=np.int64)
        notes.append("Clusters hold hardly more than one answer each and are ignored.")
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


def _text(path: Path) -> str:
    """The file's text."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}.") from None
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror or fault}.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text.") from None
    if "\0" in text:
        raise UsageError(f"{path} is a binary file, not CSV or JSONL.")
    if not text.strip():
        raise UsageError(f"{path} is empty.")
    return text


def _parse(path: Path, text: str) -> tuple[Sequence[str], list[_Line]]:
    """Column names in order, and the lines."""
    if text.lstrip().startswith("{"):
        lines = list(_jsonl(path, text))
        return list(dict.fromkeys(name for line in lines for name in line.cells)), lines
    return _csv(path, text)


def _jsonl(path: Path, text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise UsageError(f"{path}, line {number}: not a JSON object.") from None
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {number}: not a JSON object.")
        yield _Line(number, {str(name): _plain(value) for name, value in record.items()})


def _plain(value: object) -> str:
    """A JSON value the way a CSV cell would spell it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _csv(path: Path, text: str) -> tuple[Sequence[str], list[_Line]]:
    head = text.lstrip().splitlines()[0]
    delimiter = max(DELIMITERS, key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    columns: list[str] = []
    lines = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = [cell.strip() for cell in cells]
                continue
            # Short rows are allowed here: the missing cell is reported by its column's name.
            values = dict(zip(columns, cells, strict=False))
            lines.append(_Line(reader.line_num, values))
    except csv.Error as fault:
        raise UsageError(f"{path}, line {reader.line_num}: {fault}.") from None
    return columns, lines


def _column(path: Path, columns: Sequence[str], role: str, name: str | None) -> str | None:
    """The column that plays a role: the one named, or the first with a usual name."""
    if name is not None:
        if name not in columns:
            raise UsageError(f"{path} has no column {name!r}; found: {', '.join(columns)}.")
        return name
    for usual in NAMES[role]:
        for column in columns:
            if column.lower() == usual:
                return column
    return None


def _rows(path: Path, lines: Sequence[_Line], found: Mapping[str, str | None]) -> ImportedRows:
    position = np.array([_integer(line, found["position"]) for line in lines], dtype=np.int64)
    correct = np.array([_truth(line, found["correct"]) for line in lines], dtype=np.int8)
    if len(np.unique(position)) < 2:
        raise UsageError(f"{path} holds a single position: there is no other phase.")
    cluster = None
    if found["cluster"]:
        names = [line.cells.get(found["cluster"], "").strip() for line in lines]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        cluster = np.array([numbers[name] for name in names], dtype=np.int64)
    return ImportedRows(position, correct, cluster)


def _counts(lines: Sequence[_Line], found: Mapping[str, str | None]) -> ImportedCounts:
    seen: dict[int, tuple[int, int]] = {}
    for line in lines:
        residue = _integer(line, found["residue"])
        n, correct = _integer(line, found["n"]), _integer(line, found["correct"])
        if residue in seen:
            raise UsageError(f"Line {line.number}: residue {residue} occurs a second time.")
        if correct > n:
            raise UsageError(f"Line {line.number}: {correct} right of {n} answers.")
        seen[residue] = (n, correct)
    if len(seen) < 2:
        raise UsageError("The file holds a single residue: there is no other phase.")
    return ImportedCounts(
        tuple(seen), tuple(n for n, _ in seen.values()), tuple(c for _, c in seen.values())
    )


def _integer(line: _Line, column: str | None) -> int:
    """A cell that must be a whole number of at least 0."""
    cell = line.cells.get(column or "", "").strip()
    try:
        value = float(cell)
    except ValueError:
        raise UsageError(f"Line {line.number}: {column} is {cell!r}, not a number.") from None
    if not (0 <= value < LARGEST and value == int(value)):
        raise UsageError(f"Line {line.number}: {column} is {cell}, not a whole number from 0 up.")
    return int(value)


def _truth(line: _Line, column: str | None) -> int:
    """A cell that must be 0, 1, true or false."""
    cell = line.cells.get(column or "", "").strip()
    if cell.lower() not in TRUTH:
        raise UsageError(f"Line {line.number}: {column} is {cell!r}, not 0, 1, true or false.")
    return TRUTH[cell.lower()]
