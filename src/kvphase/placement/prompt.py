"""A user's prompts with any number of marked spans, in the formats that ``kvphase shift`` takes.

Marks are the same: ``{{mark}}...{{/mark}}`` around what matters, ``{{pad}}`` where filler may go.
Here there may be several of both.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.runs import shift_source
from kvphase.runs.shift_place import paragraph_starts
from kvphase.runs.shift_source import CLOSE, OPEN, PAD, Source, Wanted
from kvphase.runs.shift_source import Place as Spot

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["marked", "system", "instructions", "block"]
MOST_BLOCKS = 3
"""Longest blocks that are looked at where nothing is marked."""
MOST_SPANS = 64
_SIGNS = {PAD: "\ue0f0", OPEN: "\ue0f1", CLOSE: "\ue0f2"}
"""What stands for a mark while the formats are read: private characters, which no format minds."""
_MARKS = re.compile("[" + "".join(_SIGNS.values()) + "]")


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a prompt that matters."""

    kind: Kind
    begin: Spot
    end: Spot
    """In the same text as ``begin``."""

    def text(self, source: Source) -> str:
        """What it says."""
        return source.fields[self.begin.field][self.begin.offset : self.end.offset]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt without its marks, and what was marked."""

    source: Source
    spans: tuple[Span, ...]
    """In the order of the prompt, without overlaps."""
    pads: tuple[Spot, ...]
    """Where the user wants filler; elsewhere none is put in if there is any."""

    @property
    def marked(self) -> bool:
        """Whether the user said which spans matter."""
        return any(span.kind == "marked" for span in self.spans)


@dataclass(frozen=True, slots=True)
class Given:
    """A file's prompts, and how to write them back."""

    prompts: tuple[Prompt, ...]
    data: Any
    """What the file holds where it is no plain text: the request, the messages or the tasks."""
    name: str

    def written(self, changed: list[Source], *, yaml: bool) -> str:
        """The file with its prompts replaced by ``changed``, everything else as it was.

        Marks are left out. A plain text stays plain; a list of tasks is written as YAML or JSON.
        """
        if self.data is None:
            return changed[0].fields[0]
        if isinstance(self.data, dict) and not isinstance(self.data.get("tasks"), list):
            return _dumped({**self.data, **_content(changed[0])})
        if all("role" in one for one in self.data if isinstance(one, dict)):
            return _dumped(_content(changed[0])["messages"])
        tasks = self.data["tasks"] if isinstance(self.data, dict) else self.data
        made = [
            {
                **{k: v for k, v in task.items() if k not in _PROMPTS},
                **({"prompt": source.fields[0]} if "prompt" in task else _content(source)),
            }
            for task, source in zip(tasks, changed, strict=True)
        ]
        whole = {**self.data, "tasks": made} if isinstance(self.data, dict) else made
        return _as_yaml(whole) if yaml else _dumped(whole)


_PROMPTS = ("prompt", "messages", "file")


def _content(source: Source) -> dict[str, Any]:
    if source.body is None:
        return {"prompt": source.fields[0]}
    return {"messages": source.request()["messages"]}


def _dumped(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _as_yaml(data: object) -> str:
    import yaml  # type: ignore[import-untyped]  # late: only suites need it

    return str(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))


def read_prompts(path: str, wanted: Wanted) -> Given:
    """The prompts of a file, or of standard input for ``-``, each with its spans.

    Raises:
        UsageError: it is none of the formats, is not UTF-8, is empty, or its marks are odd.
    """
    if path == "-":
        raw = sys.stdin.buffer.read(shift_source.MOST_BYTES)
        text, name, folder = _signed(shift_source.decoded(raw, "-")), "-", Path()
        ending = ".json" if text.lstrip()[:1] in ("{", "[") else ""
    else:
        file = Path(path)
        text, name, folder = _signed(shift_source.read_text(file)), file.name, file.parent
        ending = file.suffix.lower()
    readers: dict[str, Callable[[str, str], Any]] = {
        ".json": shift_source.parse_json,
        ".yaml": shift_source.parse_yaml,
        ".yml": shift_source.parse_yaml,
    }
    if ending in readers:
        data = _with_files(readers[ending](text, name), folder)
        sources = shift_source.sources_of(data, name, folder, wanted)
    elif ending in shift_source.TEXT_ENDINGS:
        data, sources = None, [shift_source.plain_source(text, name, wanted)]
    else:
        raise UsageError(message("shift.format", name=name))
    return Given(tuple(_prompt(source) for source in sources), data, name)


def _signed(text: str) -> str:
    if _MARKS.search(text):
        raise UsageError(message("layout.private"))
    for mark, sign in _SIGNS.items():
        text = text.replace(mark, sign)
    return text


def _with_files(data: Any, folder: Path) -> Any:  # noqa: ANN401 - of a JSON file
    """Tasks that name a text have the text itself, so that it may hold several marks."""
    tasks = data.get("tasks") if isinstance(data, dict) else data
    if not isinstance(tasks, list):
        return data
    for number, task in enumerate(tasks, 1):
        if not isinstance(task, dict) or "prompt" in task or "messages" in task:
            continue
        file = task.get("file")
        if not isinstance(file, str):
            continue
        if Path(file).suffix.lower() not in shift_source.TEXT_ENDINGS:
            raise UsageError(message("layout.file-text", name=str(task.get("name") or number)))
        task["prompt"] = _signed(shift_source.read_text(folder / file))
        del task["file"]
    return data


def _prompt(source: Source) -> Prompt:
    """The marks taken out of the texts, or spans found where nothing is marked.

    Raises:
        UsageError: marks are not balanced, enclose nothing or filler, or are far too many.
    """
    fields, spans, pads = [], list[Span](), list[Spot]()
    for number, text in enumerate(source.fields):
        fields.append(_unmarked(text, number, spans, pads, source.name))
    clean = replace(source, fields=tuple(fields), pad=None, begin=None, end=None, tail_pad=None)
    if not any(text.strip() for text in fields):
        raise UsageError(message("shift.empty", name=source.name))
    if len(spans) > MOST_SPANS:
        raise UsageError(message("layout.too-many", name=source.name, most=MOST_SPANS))
    return Prompt(clean, tuple(spans) if spans else _found(clean), tuple(pads))


def _unmarked(text: str, number: int, spans: list[Span], pads: list[Spot], name: str) -> str:
    """The text without its marks, which are added to ``spans`` and ``pads``."""
    kept, read = "", 0
    opened: Spot | None = None
    for found in _MARKS.finditer(text):
        kept, read = kept + text[read : found.start()], found.end()
        here, sign = Spot(number, len(kept)), found.group()
        if sign == _SIGNS[PAD]:
            if opened is not None:
                raise UsageError(message("shift.pad-in-mark", name=name))
            pads.append(here)
            continue
        if (sign == _SIGNS[OPEN]) != (opened is None) or opened == here:
            raise UsageError(message("shift.unbalanced", name=name))
        if opened is not None:
            spans.append(_trimmed(Span("marked", opened, here), kept, name))
        opened = here if sign == _SIGNS[OPEN] else None
    if opened is not None:
        raise UsageError(message("shift.unbalanced", name=name))
    return kept + text[read:]


def _trimmed(span: Span, text: str, name: str) -> Span:
    """Without the blank lines around it; a word's own space belongs to its token and stays."""
    inside = text[span.begin.offset : span.end.offset]
    if not inside.strip():
        raise UsageError(message("shift.unbalanced", name=name))
    lead = len(inside) - len(inside.lstrip("\r\n"))
    trail = len(inside) - len(inside.rstrip("\r\n"))
    field = span.begin.field
    begin, end = Spot(field, span.begin.offset + lead), Spot(field, span.end.offset - trail)
    return Span(span.kind, begin, end)


def _found(source: Source) -> tuple[Span, ...]:
    """Where nothing is marked: system prompt, instructions and the longest blocks.

    Instructions are the first paragraph of what the user says and the last one of all: tasks
    stand there. Blocks are the longest paragraphs between them.
    """
    paragraphs: list[Span] = []
    system: list[Span] = []
    for number, text in enumerate(source.fields):
        if not text.strip():
            continue
        whole = Span("system", *_edges(number, text, 0, len(text)))
        if _role(source, number) in ("system", "developer"):
            system.append(whole)
            continue
        starts = [0, *paragraph_starts(text), len(text)]
        paragraphs += [
            Span("block", *_edges(number, text, a, b))
            for a, b in itertools.pairwise(starts)
            if text[a:b].strip()
        ]
    ends = paragraphs[:1] + paragraphs[1:][-1:]
    named = [replace(span, kind="instructions") for span in ends]
    between = sorted(paragraphs[1:-1], key=lambda span: span.begin.offset - span.end.offset)
    spans = [*system, *named, *between[:MOST_BLOCKS]]
    return tuple(sorted(spans, key=lambda span: (span.begin.field, span.begin.offset)))


def _edges(number: int, text: str, start: int, end: int) -> tuple[Spot, Spot]:
    inside = text[start:end]
    lead = len(inside) - len(inside.lstrip("\r\n"))
    return Spot(number, start + lead), Spot(number, start + len(inside.rstrip()))


def _role(source: Source, number: int) -> str:
    if source.body is None:
        return "user"
    return str(source.body["messages"][source.where[number][0]]["role"])


__all__ = ["Given", "Prompt", "Span", "read_prompts"]
