"""The catalogue says the same in both languages, and says nothing that nobody uses."""

from __future__ import annotations

import ast
import copy
import io
import json
import pickle
import re
import string
from importlib import resources
from pathlib import Path

import pytest

import kvphase
from kvphase.catalogue import Catalogue, Message, carries, choose, message, preferred

FOLDER = resources.files("kvphase.data") / "catalogue"
SOURCE = Path(kvphase.__file__).parent
SPEAKERS = ("say", "_say", "message", "fault", "known")
"""Functions and methods that take a key; a Catalogue is always called ``say``."""
NAMES = {"terminal.named"}
"""Texts that are nothing but fields or names in either language."""
CHINESE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
KEY = re.compile(r"[a-z]+\.[A-Za-z0-9.-]*")


def texts() -> dict[str, dict[str, str]]:
    return {
        f"{file.name.removesuffix('.json')}.{name}": spoken
        for file in FOLDER.iterdir()
        if file.name.endswith(".json")
        for name, spoken in json.loads(file.read_text("utf-8")).items()
    }


TEXTS = texts()


def fields(text: str) -> set[tuple[str, str, str]]:
    parts = string.Formatter().parse(text)
    return {(name, form or "", how or "") for _, name, form, how in parts if name is not None}


@pytest.mark.parametrize("key", sorted(TEXTS))
def test_both_languages_say_the_same(key: str) -> None:
    spoken = TEXTS[key]
    assert set(spoken) == {"en", "zh"}
    english, chinese = spoken["en"], spoken["zh"]
    extra = {("id", "", "")} if key in NAMES else set()
    assert fields(english) == fields(chinese) - extra
    assert not CHINESE.search(english)
    assert "  " not in english + chinese
    words = re.sub(r"\{[^}]*\}", "", english)
    is_name = key in NAMES or (english == chinese and " " not in english)
    if re.search("[a-z]{3}", words) and not is_name:
        assert CHINESE.search(chinese), chinese
    assert "\n" not in english + chinese


def test_no_key_is_given_twice() -> None:
    for file in FOLDER.iterdir():
        if file.name.endswith(".json"):
            pairs = json.loads(file.read_text("utf-8"), object_pairs_hook=list)
            names = [name for name, _ in pairs]
            assert len(names) == len(set(names)), file.name


def strings(node: ast.AST) -> list[str]:
    """String literals in a key's expression, fields of f-strings as ``*``."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else "*" for v in node.values]
        return ["".join(map(str, parts))]
    if isinstance(node, ast.IfExp):
        return [*strings(node.body), *strings(node.orelse)]
    return []


def keys(speaker: str, arguments: list[ast.expr]) -> list[str]:
    """The keys that a call may give to the catalogue."""
    first = strings(arguments[0])
    if speaker == "fault":
        return [f"error.{name}" for name in first]
    if speaker == "known" and len(arguments) > 1:
        return [f"{section}.{name}" for section in first for name in strings(arguments[1])]
    return first


def used() -> tuple[set[str], set[str]]:
    """Keys given to the catalogue literally, and every literal of the source."""
    spoken: set[str] = set()
    literal: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                literal.update(strings(node))
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in SPEAKERS:
                spoken.update(keys(name, node.args))
    for path in (SOURCE / "report").rglob("*.j2"):
        literal.update(re.findall(r"""["']([\w.-]+)["']""", path.read_text("utf-8")))
    return {key for key in spoken if KEY.match(key)}, literal | spoken


SPOKEN, LITERAL = used()


def test_every_key_that_is_used_exists() -> None:
    sections = {key.split(".")[0] for key in TEXTS}
    for key in SPOKEN:
        if key.split(".")[0] in sections or "*" not in key:
            pattern = re.escape(key).replace(r"\*", ".+")
            assert any(re.fullmatch(pattern, known) for known in TEXTS), key


def made_from(text: str, but: str = "") -> bool:
    """Whether the source holds ``text``, or an f-string other than ``but`` that may give it."""
    stems = (stem for stem in LITERAL - {but} if "*" in stem and not stem.startswith("*"))
    return text in LITERAL or any(
        re.fullmatch(re.escape(stem).replace(r"\*", ".+"), text) for stem in stems
    )


def is_used(key: str) -> bool:
    """Whether the source names the key, or makes it from a section and a name it holds.

    ``f"error.{name}"`` alone would count every error as used: the name must be there too.
    """
    section, _, name = key.partition(".")
    whole = f"{section}.*"
    by_name = whole in LITERAL and made_from(name)
    return by_name or made_from(key, but=whole)


def test_every_key_is_used() -> None:
    assert not {key for key in TEXTS if not is_used(key)}


def test_a_message_is_english_and_remembers_how_it_was_made() -> None:
    over = message("verdict.over.blocks-one")
    made = message("terminal.gap.crossfit", pp=1.0, low=0.0, high=2.0, over=over)
    assert made.endswith("over blocks in this context.")
    assert "这个上下文" in Catalogue("zh").of(made)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301
        assert isinstance(copied, Message)
        assert (copied, copied.key, copied.values) == (made, made.key, made.values)
    assert Catalogue("zh").of("anything else") == "anything else"


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(KeyError):
        message("verdict.nonsense")


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C.UTF-8", "KVPHASE_LANG": "zh-Hant"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "KVPHASE_LANG": "en"}, "en"),
    ],
)
def test_the_preferred_language(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], language: str
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "KVPHASE_LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    choose(None)
    assert preferred() == language
    choose("zh")
    try:
        assert preferred() == "zh"
        assert preferred("en") == "en"
    finally:
        choose(None)


@pytest.mark.parametrize(
    ("encoding", "language"),
    [("utf-8", "zh"), ("gbk", "zh"), ("big5", "zh"), ("ascii", "en"), ("cp1252", "en")],
)
def test_chinese_is_spoken_where_it_can_be_written(encoding: str, language: str) -> None:
    choose("zh")
    try:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        assert Catalogue.on(stream).language == language
    finally:
        choose(None)
    assert carries(encoding, "en")
    assert not carries("no-such-encoding", "zh")
    assert not carries(None, "zh")
