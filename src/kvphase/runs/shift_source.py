"""A user's prompts as they come: a text, ``messages``, a whole request, or a suite of them.

Marks are written into the text: ``{{pad}}`` where filler may go, ``{{mark}}...{{/mark}}`` around
what the answer rests on. They are taken out before anything is asked.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import message
from kvphase.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

PAD, OPEN, CLOSE = "{{pad}}", "{{mark}}", "{{/mark}}"
MATCHES = ("exact", "contains", "regex", "choice", "json")
MOST_BYTES = 32 * 2**20
_REQUEST = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "add_generation_prompt",
    "response_format",
    "reasoning_format",
)
"""What a request may hold besides its messages that moves positions: passed on to the template."""
_KNOWN = ("name", "prompt", "messages", "file", "answer", "against", "match", "tokens", "chat")
TEXT_ENDINGS = (".txt", ".md", ".text", ".prompt", "")
"""Of files that are read as one text."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position between two characters of a prompt."""

    field: int
    """Which of the prompt's texts: a plain prompt has one, a chat one for each message part."""
    offset: int


@dataclass(frozen=True, slots=True)
class Source:
    """One prompt without its marks."""

    name: str
    fields: tuple[str, ...]
    body: dict[str, Any] | None
    """The request that the texts belong to; None for a plain prompt."""
    where: tuple[tuple[int, int], ...] = ()
    """(message, part) of each text; part -1 where the content is a string."""
    pad: Place | None = None
    """Where the user wants filler."""
    tail_pad: Place | None = None
    """Where the user wants filler behind the marked span."""
    begin: Place | None = None
    """Start of the first marked span."""
    end: Place | None = None
    """End of the last one."""
    answer: str | None = None
    against: str | None = None
    match: str = "exact"
    tokens: int | None = None

    @property
    def text(self) -> str:
        """All texts, to search in."""
        return "\n".join(self.fields)

    def filled(self, at: Place, text: str) -> Source:
        """With ``text`` inserted; places are not moved along."""
        old = self.fields[at.field]
        new = old[: at.offset] + text + old[at.offset :]
        return replace(self, fields=(*self.fields[: at.field], new, *self.fields[at.field + 1 :]))

    def request(self) -> dict[str, Any]:
        """The request with its texts put back; only for a chat."""
        body = copy.deepcopy(self.body or {})
        for text, (number, part) in zip(self.fields, self.where, strict=True):
            if part < 0:
                body["messages"][number]["content"] = text
            else:
                body["messages"][number]["content"][part]["text"] = text
        return body

    def as_json(self) -> list[Any]:
        """Everything that decides what is asked, for a digest."""
        places = [self.pad, self.tail_pad, self.begin, self.end]
        spots = [None if one is None else [one.field, one.offset] for one in places]
        asked = [self.answer, self.against, self.match, self.tokens]
        return [self.name, list(self.fields), self.body, spots, asked]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says about every prompt that does not say it itself."""

    answer: str | None = None
    against: str | None = None
    match: str = "exact"
    tokens: int | None = None
    chat: bool = False


def read_sources(path: str, wanted: Wanted) -> list[Source]:
    """The prompts of a file, or of standard input for ``-``.

    Raises:
        UsageError: it is none of the known formats, is not UTF-8, is empty, or its marks are odd.
    """
    if path == "-":
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(message("shift.too-big", name="-", mb=MOST_BYTES // 2**20))
        text = decoded(data, "-")
        shaped = text.lstrip()[:1] in ("{", "[")
        return (
            sources_of(parse_json(text, "-"), "-", Path(), wanted)
            if shaped
            else [plain_source(text, "-", wanted)]
        )
    file = Path(path)
    text = read_text(file)
    ending = file.suffix.lower()
    if ending == ".json":
        return sources_of(parse_json(text, file.name), file.name, file.parent, wanted)
    if ending in (".yaml", ".yml"):
        return sources_of(parse_yaml(text, file.name), file.name, file.parent, wanted)
    if ending not in TEXT_ENDINGS:
        raise UsageError(message("shift.format", name=file.name))
    return [plain_source(text, file.name, wanted)]


def read_text(file: Path) -> str:
    """The text of a file of at most `MOST_BYTES`.

    Raises:
        UsageError: it is none, too large, or not UTF-8.
    """
    try:
        if file.is_dir():
            raise UsageError(message("shift.folder", name=str(file)))
        if not file.is_file():
            raise UsageError(message("shift.no-file", name=str(file)))
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(message("shift.too-big", name=file.name, mb=MOST_BYTES // 2**20))
        return decoded(file.read_bytes(), file.name)
    except OSError as error:
        raise UsageError(message("shift.unreadable", name=file.name, why=error.strerror)) from error


def decoded(data: bytes, name: str) -> str:
    """UTF-8 with or without a byte-order mark; line ends stay as they are."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(message("shift.not-utf8", name=name, at=error.start)) from error


def parse_json(text: str, name: str) -> Any:  # noqa: ANN401 - any JSON
    """The data in ``text``; a `UsageError` names the file where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(message("shift.bad-json", name=name, why=_line(error))) from error


def parse_yaml(text: str, name: str) -> Any:  # noqa: ANN401 - any YAML
    """The data in ``text``; a `UsageError` names the file where it is not YAML."""
    import yaml  # type: ignore[import-untyped]  # late: only suites need it

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(message("shift.bad-yaml", name=name, why=_line(error))) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def sources_of(data: Any, name: str, folder: Path, wanted: Wanted) -> list[Source]:  # noqa: ANN401
    """A request, its messages alone, or a list of tasks."""
    if isinstance(data, dict) and isinstance(data.get("tasks"), list):
        data = data["tasks"]
    if isinstance(data, dict):
        return [_task(data, name, folder, wanted, request=True)]
    if not isinstance(data, list) or not data:
        raise UsageError(message("shift.format", name=name))
    if all(isinstance(one, dict) and "role" in one for one in data):
        return [_task({"messages": data}, name, folder, wanted, request=True)]
    if not all(isinstance(one, dict) for one in data):
        raise UsageError(message("shift.format", name=name))
    sources = []
    for number, one in enumerate(data, 1):
        label = str(one.get("name") or f"{number}")
        sources.append(_task(one, label, folder, wanted, request=False))
    if len({source.name for source in sources}) < len(sources):
        raise UsageError(message("shift.same-names", name=name))
    return sources


def _task(
    data: dict[str, Any], name: str, folder: Path, wanted: Wanted, *, request: bool
) -> Source:
    """One task: a mapping with its prompt and what is expected."""
    if not request:
        odd = [key for key in data if key not in (*_KNOWN, *_REQUEST)]
        if odd:
            raise UsageError(message("shift.odd-key", name=name, entry=str(odd[0])))
    wanted = replace(
        wanted,
        answer=_string(data, "answer", name, wanted.answer),
        against=_string(data, "against", name, wanted.against),
        match=_string(data, "match", name, wanted.match) or "exact",
        tokens=_count(data, name, wanted.tokens),
        chat=bool(data.get("chat", wanted.chat)),
    )
    given = [key for key in ("prompt", "messages", "file") if key in data]
    if len(given) != 1:
        raise UsageError(message("shift.which-prompt", name=name))
    if given[0] == "messages":
        kept = {key: data[key] for key in _REQUEST if key in data}
        return _chat({"messages": data["messages"], **kept}, name, wanted)
    if given[0] == "file":
        path = _string(data, "file", name, None) or ""
        (source, *rest) = read_sources(str(folder / path), wanted)
        if rest:
            raise UsageError(message("shift.nested", name=name))
        return replace(source, name=name)
    return plain_source(_string(data, "prompt", name, None) or "", name, wanted)


def _string(data: dict[str, Any], key: str, name: str, default: str | None) -> str | None:
    """A text; numbers and truth values of YAML are taken as they are spelled."""
    value = data.get(key, default)
    if isinstance(value, bool) or (value is not None and not isinstance(value, str | int | float)):
        raise UsageError(message("shift.not-text", name=name, entry=key))
    return None if value is None else str(value)


def _count(data: dict[str, Any], name: str, default: int | None) -> int | None:
    for key in ("tokens", "max_completion_tokens", "max_tokens"):
        value = data.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(message("shift.not-count", name=name, entry=key))
        return value
    return default


def plain_source(text: str, name: str, wanted: Wanted) -> Source:
    """A text; the line end that editors put last is no part of it, as with llama.cpp's own."""
    text = text.removesuffix("\n").removesuffix("\r")
    if wanted.chat:
        return _chat({"messages": [{"role": "user", "content": text}]}, name, wanted)
    return _marked(Source(name, (text,), None), wanted)


def _chat(body: dict[str, Any], name: str, wanted: Wanted) -> Source:
    """Every text of the messages' contents as a field."""
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise UsageError(message("shift.messages", name=name))
    found = [
        (text, (number, part))
        for number, one in enumerate(messages)
        for part, text in _contents(one, name)
    ]
    fields, where = tuple(text for text, _ in found), tuple(place for _, place in found)
    return _marked(Source(name, fields, body, where), wanted)


def _contents(one: Any, name: str) -> list[tuple[int, str]]:  # noqa: ANN401 - of a JSON file
    """The texts of a message with their part's number, -1 where the content is one string."""
    if not isinstance(one, dict) or not isinstance(one.get("role"), str):
        raise UsageError(message("shift.messages", name=name))
    content = one.get("content")
    if content is None:  # a tool call has none
        return []
    if isinstance(content, str):
        return [(-1, content)]
    if not isinstance(content, list):
        raise UsageError(message("shift.messages", name=name))
    parts = [piece.get("text") if isinstance(piece, dict) else None for piece in content]
    if not all(isinstance(text, str) for text in parts):
        raise UsageError(message("shift.parts", name=name))
    return [(part, str(text)) for part, text in enumerate(parts)]


@dataclass(slots=True)
class _Marks:
    """What was found in the texts so far."""

    pads: list[Place] = field(default_factory=list)
    spans: list[tuple[Place, Place]] = field(default_factory=list)


def _marked(source: Source, wanted: Wanted) -> Source:
    """Take the marks out of the texts and remember where they stood."""
    marks = _Marks()
    fields = tuple(_unmarked(text, i, marks, source.name) for i, text in enumerate(source.fields))
    if not any(text.strip() for text in fields):
        raise UsageError(message("shift.empty", name=source.name))
    begin = marks.spans[0][0] if marks.spans else None
    end = marks.spans[-1][1] if marks.spans else None
    head, tail = _pads(marks, source.name)
    _check(wanted, source.name)
    return replace(
        source,
        fields=fields,
        begin=begin,
        end=end,
        pad=head,
        tail_pad=tail,
        answer=wanted.answer,
        against=wanted.against,
        match=wanted.match,
        tokens=wanted.tokens,
    )


_MARK = re.compile("|".join(map(re.escape, (PAD, OPEN, CLOSE))))


def _unmarked(text: str, number: int, marks: _Marks, name: str) -> str:
    """The text without its marks, which are added to ``marks``."""
    kept, read = "", 0
    opened: Place | None = None
    for found in _MARK.finditer(text):
        kept, read = kept + text[read : found.start()], found.end()
        here, mark = Place(number, len(kept)), found.group()
        if mark == PAD:
            if opened is not None:
                torn = CLOSE in text[read:]
                key = "shift.pad-in-mark" if torn else "shift.unbalanced"
                raise UsageError(message(key, name=name))
            marks.pads.append(here)
            continue
        if (mark == OPEN) != (opened is None) or opened == here:
            raise UsageError(message("shift.unbalanced", name=name))
        if opened is not None:
            marks.spans.append((opened, here))
        opened = here if mark == OPEN else None
    if opened is not None:
        raise UsageError(message("shift.unbalanced", name=name))
    return kept + text[read:]


def _pads(marks: _Marks, name: str) -> tuple[Place | None, Place | None]:
    """The marker before the marked span, and the one behind it for the control."""
    if not marks.spans:
        if len(marks.pads) > 1:
            raise UsageError(message("shift.two-pads", name=name))
        return _only(marks.pads), None
    first, last = _key(marks.spans[0][0]), _key(marks.spans[-1][1])
    before = [pad for pad in marks.pads if _key(pad) <= first]
    after = [pad for pad in marks.pads if _key(pad) >= last]
    if len(before) > 1 or len(after) > 1 or len(before) + len(after) < len(marks.pads):
        raise UsageError(message("shift.two-pads", name=name))
    return _only(before), _only(after)


def _only(places: Sequence[Place]) -> Place | None:
    return places[0] if places else None


def _key(place: Place) -> tuple[int, int]:
    return place.field, place.offset


def _check(wanted: Wanted, name: str) -> None:
    """Refuse what cannot be asked for together."""
    match = wanted.match
    if match not in MATCHES and not (match.startswith("command:") and match[8:].strip()):
        raise UsageError(message("shift.bad-match", name=name, match=match[:60]))
    if wanted.answer is not None and not wanted.answer.strip():
        raise UsageError(message("shift.empty-answer", name=name))
    if wanted.answer is None and match not in ("exact",) and not match.startswith("command:"):
        raise UsageError(message("shift.match-without", name=name, match=match))
    if wanted.against is not None and wanted.answer is None:
        raise UsageError(message("shift.against-without", name=name))
    if wanted.against is not None and wanted.against == wanted.answer:
        raise UsageError(message("shift.against-same", name=name))


def outside(source: Source) -> int:
    """How often the answer stands in the prompt outside the first marked span."""
    answer = (source.answer or "").strip()
    if not answer:
        return 0
    count = sum(text.count(answer) for text in source.fields)
    if source.begin is None or source.end is None:
        return max(0, count - 1)
    if source.begin.field != source.end.field:
        return max(0, count - 1)
    inside = source.fields[source.begin.field][source.begin.offset : source.end.offset]
    return count - inside.count(answer)


def digest_of(sources: Sequence[Source]) -> str:
    """Of everything that decides what is asked."""
    import hashlib

    text = json.dumps([source.as_json() for source in sources], sort_keys=True)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()
