"""What a shift run holds for a decision: the tasks of its suite that have a right answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.runs.evidence import Evidence, Length, Suite
from kvphase.runs.shift import load_shift
from kvphase.types import Arm

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from kvphase.runs.shift import ShiftRun
    from kvphase.types import Answers

MODULUS = 8
"""Residues of a suite's curve: the shifts that are asked in any case hold each of them once."""
SUITE = "suite"
"""Name of the only length of a shift run, and of its design."""


def read_suite(path: Path) -> Evidence:
    """Read the run file of ``kvphase shift``; nothing is asked and nothing written.

    Tasks without an expected answer are left out: nothing is right or wrong there. A suite is a
    fixed set of questions, so its digest plays the part of a named probe.

    Raises:
        UsageError: no task has an expected answer.
        StoreError: it cannot be read or holds no answer.
    """
    run = load_shift(path)
    graded = [i for i, task in enumerate(run.plan["tasks"]) if task["expected"] is not None]
    if not graded:
        raise UsageError(message("decide.suite-ungraded", name=path.name))
    return _evidence(run, path.name, graded)


def _evidence(run: ShiftRun, name: str, graded: list[int]) -> Evidence:
    manifest, tasks = run.manifest, run.plan["tasks"]
    a = run.answers
    wanted = (a.arm == Arm.SCREEN.value) & np.isin(a.item, graded) & (a.correct >= 0)
    answers = a.where(wanted)
    length = Length(
        rung=SUITE,
        kind=SUITE,
        tokens=max(int(tasks[i]["tokens"]) for i in graded),
        modulus=MODULUS,
        design={},
        partial=run.partial,
        verdict=run.found.verdict,
        reason=run.found.reason,
        period=run.found.period,
        measure="accuracy",
        answers=answers,
        fresh=np.ones(len(answers), bool),
        level=answers,
        content=_content(answers, int(run.plan["base"])),
    )
    return Evidence(
        name=name,
        title=str(manifest["model"] or manifest["target"]),
        target=str(manifest["target"]),
        build=manifest["build"],
        quant=manifest["quant"],
        labels=dict(manifest["labels"]),
        seed=int(manifest["seed"]),
        tokenizer=None,
        chat=None,
        thinking=manifest["thinking"],
        toy=bool(manifest["toy"]),
        partial=run.partial,
        verdict=run.found.verdict,
        reason=run.found.reason,
        frozen=True,
        headline=SUITE,
        lengths=(length,),
        skipped=(),
        suite=Suite(
            digest=str(manifest["prompts"]),
            tasks=len(graded),
            ungraded=len(tasks) - len(graded),
            flips=sum(run.found.flips[i] for i in graded),
            base=int(run.plan["base"]),
        ),
    )


def _content(answers: Answers, base: int) -> NDArray[np.str_]:
    """What pairs two runs of one suite, shape (n,): task, residue of the position, cycle, filler.

    Not the tokens: the same suite read by two tokenizers is the same text at the same residue of
    its marked span, which is what is to be compared.
    """
    cycle = (answers.pad - base) // MODULUS
    columns = (answers.item, answers.position % MODULUS, cycle, answers.block)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([":".join(map(str, row)) for row in rows], np.str_)


__all__ = ["MODULUS", "SUITE", "read_suite"]
