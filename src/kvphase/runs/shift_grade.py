"""When an answer counts as right."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.runs.store import grade

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvphase.types import Ask, Reply

COMMAND = "command:"
SECONDS = 60.0
"""A command that takes longer says no."""


def grader(matches: Sequence[str]) -> Callable[[Ask, Reply], int]:
    """A function that grades an ask's reply by the rule of its task (``Ask.item``).

    1 right, 0 wrong, -1 cut. Without an expected answer and without a command every answer is
    wrong: nobody looks at it.

    Raises:
        UsageError: a command cannot be run.
    """

    def graded(ask: Ask, reply: Reply) -> int:
        if not reply.finished:
            return -1
        return int(matched(reply.text, ask, reply, matches[ask.item]))

    return graded


def matched(text: str, ask: Ask, reply: Reply, match: str) -> bool:
    """Whether an answer is right by one of the rules."""
    if match.startswith(COMMAND):
        return _accepted(match.removeprefix(COMMAND), text)
    if not ask.expected:
        return False
    expected = ask.expected.strip()
    if match == "contains":
        return expected in text
    if match == "regex":
        return re.search(ask.expected, text) is not None
    if match == "choice":
        return re.match(rf"\W*{re.escape(expected)}(?!\w)", text, re.IGNORECASE) is not None
    if match == "json":
        return _same_json(text, expected)
    return bool(grade(ask, reply))


def check_rule(name: str, match: str, answer: str | None) -> None:
    """Refuse a rule that cannot be applied, before anything is asked.

    Raises:
        UsageError: the regular expression, the JSON or the command is none.
    """
    if match == "regex" and answer is not None:
        try:
            re.compile(answer)
        except re.error as error:
            raise UsageError(message("shift.bad-regex", name=name, why=str(error))) from error
    if match == "json" and answer is not None:
        try:
            json.loads(answer)
        except ValueError as error:
            raise UsageError(message("shift.bad-answer-json", name=name)) from error
    if match.startswith(COMMAND):
        _words(match.removeprefix(COMMAND))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(message("shift.bad-command", command=command, why=str(error))) from error
    if not words:
        raise UsageError(message("shift.bad-command", command=command, why="-"))
    return words


def _accepted(command: str, text: str) -> bool:
    """Whether the command, given the answer on standard input, exits with 0."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command
            _words(command),
            input=text.encode(errors="replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    except OSError as error:
        why = error.strerror or "-"
        raise UsageError(message("shift.bad-command", command=command, why=why)) from error
    return done.returncode == 0


def _same_json(text: str, expected: str) -> bool:
    """Whether the first JSON value in the answer equals the expected one."""
    wanted = json.loads(expected)
    decoder = json.JSONDecoder()
    for start in (m.start() for m in re.finditer(r"[\[{\"\d\-tfn]", text)):
        with contextlib.suppress(ValueError):
            return bool(decoder.raw_decode(text, start)[0] == wanted)
    return False
