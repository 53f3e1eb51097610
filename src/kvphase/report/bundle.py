"""A bundle to attach to a bug report: what was found, and the smallest thing that shows it.

It is a zip of a few small text files that anybody can read before sending: the issue's text, the
verdict or diagnosis, the failing pair as token ids, and a script that needs nothing but Python.
Prompts are kvphase's own made-up records; the user's own go in only when they ask for it. Nothing
names a host, a user, a key or a folder.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.catalogue import message
from kvphase.causes.minimal import Pair, Step
from kvphase.causes.phase import exhibits
from kvphase.causes.session import load_diagnosis
from kvphase.causes.stored import pair_json, pair_of
from kvphase.errors import StoreError, UsageError
from kvphase.report.diagnosis import diagnosis_json
from kvphase.report.document import as_json, run_document
from kvphase.report.files import write_aside
from kvphase.report.issue import issue
from kvphase.runs.check import load
from kvphase.runs.store import Store
from kvphase.runtimes.http import KEY_VARIABLE
from kvphase.types import Arm

if TYPE_CHECKING:
    from kvphase.catalogue import Language

SCHEMA = "kvphase/bundle@1"
LARGEST = 32 * 2**20
"""Bytes of a member that is read."""
_FIELDS = (
    "kvphase",
    "python",
    "runtime",
    "build",
    "model",
    "quant",
    "template",
    "thinking",
    "seed",
    "tokenizer",
    "toy",
)
"""Of the manifest; labels, file names and addresses are the user's own and stay out."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every member: equal bundles are equal files, and nobody learns when one was made."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle holds, as far as a replay needs it."""

    command: str
    facts: dict[str, Any]
    document: dict[str, Any]
    """The verdict or the diagnosis."""
    pair: Pair | None
    kept_back: bool = False
    """The pair was a prompt of the user's and was left out."""


def write_bundle(
    run: Path, path: Path, language: Language = "en", *, include_prompt: bool = False
) -> Bundle:
    """Write the bundle of a check or a diagnosis.

    Args:
        run: The run file.
        path: The bundle, ``*.zip``; an earlier one is replaced.
        language: Of the issue's text.
        include_prompt: Prompts of the user's own may go in.

    Raises:
        UsageError: the path cannot be written, or is the run.
        StoreError: the run file cannot be read, or is of another command.
    """
    if path.suffix.lower() != ".zip":
        raise UsageError(message("report.suffix", path=path, suffix=".zip"))
    if not path.parent.is_dir():
        raise UsageError(message("report.no-folder", path=path))
    bundle = read_run(run, include_prompt=include_prompt)
    members = {
        "issue.md": issue(bundle.command, bundle.facts, bundle.document, bundle.pair, language),
        "bundle.json": _packed(bundle),
    }
    if bundle.pair is not None:
        members["repro.py"] = _script(bundle)
    write_aside(path, _zipped({name: _cleaned(text) for name, text in members.items()}))
    return bundle


def read_run(run: Path, *, include_prompt: bool = False) -> Bundle:
    """What of a run may go into a bundle."""
    with Store.read(run) as store:
        manifest = store.manifest
    command = manifest.get("command", "check")
    if command not in ("check", "diagnose"):
        raise StoreError(message("bundle.other-command", name=run.name, command=command))
    facts = {name: manifest.get(name) for name in _FIELDS}
    if command == "diagnose":
        found = load_diagnosis(run)
        document = json.loads(diagnosis_json(found))
        for cause in document["causes"]:
            if cause["cause"] == "precision" and cause["status"] != "not-tested":
                cause["evidence"] = ""  # it names a file of the user's
        pair = found.pair
    else:
        document = json.loads(as_json(run_document(load(run))))
        pair = _pair_of_check(run, own="dataset" in manifest)
        document["dataset"] = None
    document.update(target=None, labels={})
    kept_back = pair is not None and pair.own and not include_prompt
    return Bundle(command, facts, document, None if kept_back else pair, kept_back)


def read_bundle(path: Path) -> Bundle:
    """Read a bundle that somebody sent; nothing in it is run or unpacked.

    Raises:
        UsageError: it is none, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as file:
            info = file.getinfo("bundle.json")
            if info.file_size > LARGEST:
                raise UsageError(message("bundle.none", name=path.name))
            values = json.loads(file.read(info))
        if values["schema"] != SCHEMA:
            raise UsageError(message("bundle.schema", name=path.name, schema=values["schema"]))
        pair = pair_of(values["pair"])
        return Bundle(values["command"], dict(values["facts"]), dict(values["document"]), pair)
    except OSError as error:
        raise UsageError(message("bundle.unreadable", name=path.name, why=error.strerror)) from None
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(message("bundle.none", name=path.name)) from error


def _pair_of_check(run: Path, *, own: bool) -> Pair | None:
    """Of a confirmed run: a question right at one phase and wrong at another, as it was asked."""
    found = load(run).confirmation
    if found is None or found.confirmation is None:
        return None
    with Store.read(run) as store:
        asks, answers = store.asks(found.stage.name), store.answers(stage=found.stage.name)
    shifted = answers.where(np.asarray(answers.arm == Arm.SHIFT.value))
    moved = [ask for ask in asks if ask.arm is Arm.SHIFT]
    shown = exhibits(shifted, moved, found.confirmation.period)
    if not shown:
        return None
    steps = [
        Step(ask.prompt, 0, ask.cut, "cold", ask.generate, text, ask.expected)
        for ask, text in zip((shown[0].first, shown[0].second), shown[0].answers, strict=True)
    ]
    return Pair("phase", (steps[0], steps[1]), own=own)


def _packed(bundle: Bundle) -> str:
    values = {
        "schema": SCHEMA,
        "command": bundle.command,
        "facts": bundle.facts,
        "document": bundle.document,
        "pair": pair_json(bundle.pair),
    }
    return json.dumps(values, indent=1)


def _script(bundle: Bundle) -> str:
    """``repro.py`` with the pair in it."""
    template = resources.files("kvphase.report") / "templates" / "repro.py.txt"
    pair = json.dumps({"model": bundle.facts["model"], **(pair_json(bundle.pair) or {})})
    # Inside a string of three quotes: JSON is ASCII here, and a backslash must stay one.
    escaped = pair.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return template.read_text(encoding="utf-8").replace("@PAIR@", escaped)


def _cleaned(text: str) -> str:
    """Without the key and the home folder of whoever makes it, should they ever get in."""
    for secret in (os.environ.get(KEY_VARIABLE), str(Path.home())):
        if secret and len(secret) > 3:
            text = text.replace(secret, "***")
    return text


def _zipped(members: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, text)
    return buffer.getvalue()


__all__ = ["Bundle", "read_bundle", "read_run", "write_bundle"]
