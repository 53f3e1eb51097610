"""Results of evaluation harnesses that kept their prompts: lm-eval's samples, inspect's logs.

Nothing in these files is trusted: archives are read member by member with bounds on names, number
and size, and only as JSON.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.probes.formats.items import (
    Fact,
    Unusable,
    UnusableError,
    located,
    no_good,
    only_place,
)
from kvphase.probes.formats.reading import Record, decoded, read_bytes, records
from kvphase.probes.formats.tables import ESSAY, is_cell
from kvphase.probes.table import ZIP, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Harness = Literal["lm-eval", "inspect", "cells"]
INSPECT_VERSION = 2
MOST_MEMBERS, MOST_MEMBER, MOST_ARCHIVE = 200_000, 64 * 2**20, 512 * 2**20
_MEMBER = re.compile(r"(?:[\w .+@=,()-]+/)*[\w .+@=,()-]+")
_MARKS = (b'"arguments"', b'"eval"', b'"depth_percent"')
"""One of these names is in every file of samples; a table of results without them is no such."""
_METRICS = ("exact_match", "acc", "acc_norm", "em", "contains", "string_match", "score")
_TRUTH = {"C": 1, "I": 0, "N": 0, "correct": 1, "incorrect": 0, "true": 1, "false": 0}


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer that was graded elsewhere, with the prompt it was given to."""

    line: int
    """Of the file, or the sample's number in its log."""
    name: str
    """What its repetitions share."""
    texts: tuple[str, ...]
    """The prompt; of a chat the text of each message."""
    roles: tuple[str, ...]
    """Of the messages; empty for a plain prompt."""
    fact: Fact
    correct: int
    """1 right, 0 wrong."""


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of a file."""

    name: str
    harness: Harness
    samples: tuple[Sample, ...]
    unusable: tuple[Unusable, ...]


def read_samples(path: Path) -> Samples | None:
    """Read samples with their prompts.

    Args:
        path: ``samples_*.jsonl`` of lm-eval, an ``.eval`` archive or a JSON log of inspect, or
            needle-in-a-haystack cells that hold their context.

    Returns:
        None where the file is none of these: a table of results.

    Raises:
        UsageError: it is one of these, but damaged, of another version, or without any usable
            sample.
    """
    name = shown(path.name)
    start = _start(path)
    if start.startswith(ZIP):
        return _inspect(list(_members(path, name)), name)
    if not start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return None
    raw = read_bytes(path)
    if not any(mark in raw for mark in _MARKS):
        return None
    return _of_text(decoded(raw, name), name)


def _start(path: Path) -> bytes:
    """The first bytes of a file; none where the reader of tables will say what is wrong with it."""
    try:
        with path.open("rb") as file:
            return file.read(64)
    except (OSError, ValueError):
        return b""


def _of_text(text: str, name: str) -> Samples | None:
    """Samples as JSON, or None where they are a table of results."""
    first = _first(text)
    if first is not None and not ({"doc", "arguments"} <= first.keys() or is_cell(first)):
        return None
    found = records(text, name)
    value = found[0].value if found else None
    if not isinstance(value, dict):
        return None
    if {"eval", "version"} <= value.keys():
        return _inspect(_of_log(value, name), name)
    if {"doc", "arguments"} <= value.keys():
        return _collected(name, "lm-eval", _one_filter(found), _lm_eval)
    return _collected(name, "cells", found, _cell) if is_cell(value) else None


def _first(text: str) -> dict[str, Any] | None:
    """The object on the first line, where it is one by itself."""
    try:
        value = json.loads(text.lstrip().splitlines()[0])
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict) and "eval" in value and "version" in value:
        return None
    return value if isinstance(value, dict) else None


def _collected(
    name: str,
    harness: Harness,
    found: Sequence[Record],
    made: Callable[[Record], Sample],
) -> Samples:
    samples: list[Sample] = []
    bad: list[Unusable] = []
    for record in found:
        try:
            samples.append(made(record))
        except UnusableError as fault:
            bad.append(Unusable(record.line, fault.why))
    if not samples:
        first = bad[0] if bad else Unusable(1, message("dataset.no-samples"))
        values = {"line": first.line, "why": first.why, "count": len(bad)}
        raise UsageError(message("dataset.no-row", file=name, **values))
    return Samples(name, harness, tuple(samples), tuple(bad))


def _one_filter(found: Sequence[Record]) -> list[Record]:
    """Rows of the first filter only: the others grade the same answers once more."""
    rows = [record for record in found if isinstance(record.value, dict)]
    first = rows[0].value.get("filter")
    return [record for record in rows if record.value.get("filter") == first]


def _lm_eval(record: Record) -> Sample:
    """One row of a samples file."""
    row = record.value
    prompt = _prompt(row.get("arguments"))
    if prompt is None:
        raise no_good("no-prompt")
    texts, roles = _messages(prompt) if isinstance(prompt, list) else ((prompt,), ())
    doc = row["doc"] if isinstance(row.get("doc"), dict) else {}
    given = doc.get("outputs") or row.get("target") or doc.get("answer")
    return Sample(
        record.line, str(row.get("doc_id")), texts, roles, _one(texts, given), _metric(row)
    )


def _prompt(arguments: object) -> str | list[Any] | None:
    """The context of the first request, as logged or as kept in memory; messages as a list."""
    held: Any = arguments
    if isinstance(held, dict):
        held = held.get("gen_args_0", {})
        held = held.get("arg_0") if isinstance(held, dict) else None
    while isinstance(held, list) and held and not isinstance(held[0], dict):
        held = held[0]
    if isinstance(held, str) and held.startswith('[{"'):
        try:
            told = json.loads(held)
        except ValueError:
            return held
        return told if isinstance(told, list) else held
    return held if isinstance(held, str | list) and held else None


def _metric(row: dict[str, Any]) -> int:
    """The first metric that says right or wrong."""
    named = row.get("metrics")
    names = [*(named if isinstance(named, list) else []), *_METRICS]
    # RULER's metric is called by the prompt's length; the other lengths are -1.
    names += [key for key in row if key.isdecimal()]
    values = [row.get(name) for name in names]
    told = [v for v in values if isinstance(v, int | float) and v >= 0]
    if not told:
        raise no_good("no-score")
    if told[0] not in (0, 1):
        raise no_good("no-truth", score=str(told[0]))
    return int(told[0])


def _one(texts: Sequence[str], given: object) -> Fact:
    """The only fact that an answer rests on."""
    listed = given if isinstance(given, list) else [given]
    answers = [str(one).strip() for one in listed if one is not None and str(one).strip()]
    if not answers:
        raise no_good("no-answer")
    facts = located(texts, answers)
    if len(facts) > 1:
        raise no_good("several-facts", count=len(facts))
    return facts[0]


def _messages(told: Sequence[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Texts and roles of the messages before the last answer."""
    texts, roles = [], []
    for one in told:
        if not isinstance(one, dict):
            raise no_good("odd-messages")
        content = one.get("content")
        if isinstance(content, list):
            parts = [part.get("text", "") for part in content if isinstance(part, dict)]
            content = "".join(part for part in parts if isinstance(part, str))
        texts.append(content if isinstance(content, str) else "")
        roles.append(str(one.get("role")))
    while roles and roles[-1] == "assistant":
        texts.pop()
        roles.pop()
    return tuple(texts), tuple(roles)


def _cell(record: Record) -> Sample:
    """A cell of the needle-in-a-haystack test that holds its context."""
    row = record.value
    text = next((row[name] for name in ESSAY if isinstance(row.get(name), str)), None)
    said = row.get("needle")
    if text is None or not isinstance(said, str):
        raise no_good("no-context")
    number, begin, end = only_place((text,), said.strip())
    score = row["score"]
    if not isinstance(score, int | float):
        raise no_good("no-score")
    # Its judge gives 1 to 10, of which only 10 is "completely accurate"; others give 0 or 1.
    right = score == 10 or (score == 1 and row.get("scale") == 1)
    fact = Fact((said.strip(),), "contains", number, begin, end)
    return Sample(record.line, str(record.line), (text,), (), fact, int(right))


def _of_log(log: dict[str, Any], name: str) -> list[Any]:
    """The samples of a JSON log."""
    _must_be_known(log, name)
    samples = log.get("samples")
    if not isinstance(samples, list) or not samples:
        raise UsageError(message("dataset.no-log-samples", file=name))
    return samples


def _must_be_known(header: dict[str, Any], name: str) -> None:
    version = header.get("version")
    if version != INSPECT_VERSION:
        values = {"version": shown(version), "known": INSPECT_VERSION}
        raise UsageError(message("dataset.log-version", file=name, **values))


def _inspect(samples: Sequence[Any], name: str) -> Samples:
    found = [Record(number, value) for number, value in enumerate(samples, 1)]
    return _collected(name, "inspect", found, _logged)


def _logged(record: Record) -> Sample:
    """One sample of a log."""
    row = record.value
    if not isinstance(row, dict):
        raise no_good("odd-messages")
    if row.get("error"):
        raise no_good("failed")
    told = row.get("messages") or row.get("input")
    if isinstance(told, str):
        told = [{"role": "user", "content": told}]
    if not isinstance(told, list) or not told:
        raise no_good("no-prompt")
    texts, roles = _messages(told)
    fact = _one(texts, row.get("target"))
    return Sample(record.line, str(row.get("id")), texts, roles, fact, _score(row.get("scores")))


def _score(scores: object) -> int:
    """The first scorer's value as right or wrong."""
    first = next(iter(scores.values()), None) if isinstance(scores, dict) else None
    value = first.get("value") if isinstance(first, dict) else None
    if isinstance(value, bool) or value in (0, 1):
        return int(value)
    if isinstance(value, str) and value in _TRUTH:
        return _TRUTH[value]
    raise no_good("no-score" if value is None else "no-truth", score=shown(value))


def _members(path: Path, name: str) -> Iterator[Any]:
    """The samples of an archive, in the order of their names."""
    try:
        with zipfile.ZipFile(path) as archive:
            held = _checked(archive, name)
            header = next((one for one in held if one.filename == "header.json"), None)
            if header is None:
                raise UsageError(message("dataset.no-header", file=name))
            _must_be_known(_object(archive, header, name), name)
            samples = [one for one in held if re.fullmatch(r"samples/[^/]+\.json", one.filename)]
            if not samples:
                raise UsageError(message("dataset.no-log-samples", file=name))
            for one in sorted(samples, key=lambda one: one.filename):
                yield _object(archive, one, name)
    except (zipfile.BadZipFile, OSError, EOFError) as fault:
        raise UsageError(message("dataset.bad-zip", file=name, why=str(fault)[:100])) from None
    except (NotImplementedError, RuntimeError):
        raise UsageError(message("dataset.zip-method", file=name)) from None


def _checked(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    """The members, if all of them are what a log holds."""
    held = archive.infolist()
    if len(held) > MOST_MEMBERS or sum(one.file_size for one in held) > MOST_ARCHIVE:
        raise UsageError(message("dataset.too-big", file=name, mb=MOST_ARCHIVE // 2**20))
    names = [one.filename for one in held]
    for inside in names:
        parts = inside.rstrip("/").split("/")
        if not _MEMBER.fullmatch(inside.rstrip("/")) or {".", ".."} & set(parts):
            raise UsageError(message("dataset.zip-name", file=name, member=shown(inside)))
    if len(set(names)) < len(names):
        raise UsageError(message("dataset.zip-name", file=name, member="header.json (2)"))
    return held


def _object(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> dict[str, Any]:
    """A member as a JSON object; no more of it is unpacked than may be."""
    with archive.open(member) as stream:
        raw = stream.read(MOST_MEMBER + 1)
    if len(raw) > MOST_MEMBER:
        raise UsageError(message("dataset.too-big", file=name, mb=MOST_MEMBER // 2**20))
    inside = f"{name}/{shown(member.filename)}"
    (found, *_) = records(decoded(raw, inside), inside)
    if not isinstance(found.value, dict):
        raise UsageError(message("dataset.no-object", file=inside, line=1))
    return found.value


__all__ = ["Harness", "Sample", "Samples", "read_samples"]
