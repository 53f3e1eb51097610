"""What finished runs hold for a decision: run files, and ``verdict.json`` as far as it goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from kvphase.catalogue import message
from kvphase.errors import StoreError
from kvphase.probes.dataset import prompts_of
from kvphase.runs.check import load
from kvphase.runs.store import Store
from kvphase.schema import VerdictFile
from kvphase.types import Answers, Arm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from kvphase.runs.check import Run
    from kvphase.runs.stages import Result
    from kvphase.schema import LengthJson
    from kvphase.types import Verdict

_MAGIC = b"SQLite format 3\x00"
_NO_LENGTH = ("flip", "pilot", "confirm")
"""Parts of a run that are never compared or gated: too few prompts, or controls."""
_SETTLED = ("context_tokens", "records", "modulus", "demonstrations", "window")
"""Entries of a design that decide how hard it is and what its curve is over."""
LARGEST_JSON = 64_000_000
"""Bytes of a verdict.json that are read; a run's own has some hundred thousand."""


@dataclass(frozen=True, slots=True)
class Length:
    """One context length of a run (or one part of another probe) with its single answers."""

    rung: str
    """As in ``verdict.json``: ``needle-2048``."""
    kind: str
    """Of the design: ``insequence``, ``prefix``, ``suite``, or another probe's own name."""
    tokens: int | None
    modulus: int
    design: dict[str, Any]
    """What decides how hard it is, as far as it is known."""
    partial: bool
    verdict: str
    reason: str
    period: int | None
    measure: str
    answers: Answers
    """Finished screen answers in ask order, shape (n,); of counts one row an answer."""
    fresh: NDArray[np.bool_]
    """Answers that had no part in a finding that ended the run early, shape (n,)."""
    level: Answers
    """What level and gap come from, shape (m,): the fresh answers, after an early finding those to
    the shifted contexts of its confirmation as well; all answers without such a finding."""
    content: NDArray[np.str_] | None
    """What was asked, shape (n,): equal texts, equal prompts; None where only counts are kept."""
    groups: NDArray[np.int64] | None = None
    """Of each context what it shares its requests with: the prompt of a file's fact. None where
    contexts are independent."""

    def cluster(self, answers: Answers) -> NDArray[np.int64]:
        """What is independent of what among ``answers`` to this length, shape (n,)."""
        return answers.context if self.groups is None else self.groups[answers.context]


@dataclass(frozen=True, slots=True)
class Suite:
    """The prompts of a shift run."""

    digest: str
    """Of the prompts with their answers and marks: equal suites have equal ones."""
    tasks: int
    """With an expected answer."""
    ungraded: int
    """Without one, left out."""
    flips: int
    """Tasks that are right at some shifts and wrong at others."""
    base: int
    """Filler tokens at shift 0."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One file: what was measured on what, and its lengths."""

    name: str
    """Of the file."""
    title: str
    """The model's name, or the target's."""
    target: str
    build: str | None
    quant: str | None
    labels: dict[str, str]
    seed: int
    tokenizer: str | None
    """Digest of the words; None where it is not kept."""
    chat: bool | None
    """Asked inside a chat template; None unknown."""
    thinking: str | None
    toy: bool
    partial: bool
    verdict: str
    reason: str
    frozen: bool | None
    """Made with a named probe or ``--like``; None where it is not kept."""
    headline: str
    """The rung that the verdict rests on."""
    lengths: tuple[Length, ...]
    skipped: tuple[tuple[str, str], ...]
    """Rungs that were planned and not measured, and why."""
    suite: Suite | None = None
    """Of a shift run."""

    @property
    def counts(self) -> bool:
        """Whether only counts by residue are known, not single answers."""
        return self.frozen is None


def read_evidence(path: Path) -> Evidence:
    """Read a run file or a ``verdict.json``; nothing is asked and nothing written.

    Raises:
        StoreError: there is no such file, it is neither, it is damaged or holds no answer.
    """
    try:
        with path.open("rb") as file:
            run = file.read(len(_MAGIC)) == _MAGIC
            size = path.stat().st_size
    except FileNotFoundError as error:
        raise StoreError(message("decide.no-file", name=path.name or str(path))) from error
    except OSError as error:
        raise StoreError(message("decide.unreadable", name=path.name, why=error.strerror)) from None
    if run:
        return _of_run(path)
    if size > LARGEST_JSON:
        raise StoreError(message("decide.neither", name=path.name))
    try:
        document = VerdictFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StoreError(message("decide.neither", name=path.name)) from error
    return _of_document(document, path.name)


def _of_run(path: Path) -> Evidence:
    with Store.read(path) as store:
        command = store.manifest.get("command", "check")
    if command == "shift":
        from kvphase.runs.evidence_shift import read_suite

        return read_suite(path)
    if command != "check":
        raise StoreError(message("decide.other-command", name=path.name, command=command))
    run = load(path)
    manifest = run.manifest
    wanted = [r for r in run.results if r.verdict is not None and r.stage.kind not in _NO_LENGTH]
    with Store.read(path) as store:
        lengths = tuple(_length(result, store, run.confirmation) for result in wanted)
    return Evidence(
        name=path.name,
        title=str(manifest["model"] or manifest["target"]),
        target=str(manifest["target"]),
        build=manifest["build"],
        quant=manifest["quant"],
        labels=dict(manifest["labels"]),
        seed=int(manifest["seed"]),
        tokenizer=str(manifest["tokenizer"]),
        chat=manifest["template"] not in (None, "none"),
        thinking=manifest["thinking"],
        toy=bool(manifest["toy"]),
        partial=run.partial,
        verdict=run.verdict.verdict,
        reason=run.verdict.reason,
        frozen=bool(manifest["settings"].get("frozen")),
        headline=run.rung.stage.name,
        lengths=lengths,
        skipped=_missing(run, lengths),
    )


def _missing(run: Run, lengths: Sequence[Length]) -> tuple[tuple[str, str], ...]:
    """Lengths that the run was to measure and did not: left out, or never reached."""
    known = {length.rung for length in lengths}
    missing = {
        one.rung: str(one.why)
        for one in run.skipped
        if one.rung.partition("-")[0] not in _NO_LENGTH
    }
    for design in run.manifest["settings"].get("frozen", []):
        rung = f"needle-{design['context_tokens']}" if "context_tokens" in design else None
        if rung is not None and rung not in known:
            missing.setdefault(rung, message("decide.not-reached"))
    return tuple(missing.items())


def _length(result: Result, store: Store, shifted: Result | None) -> Length:
    """One part with its answers: the screen's, or whatever a probe without a screen asked."""
    stage, verdict = result.stage, result.verdict
    if verdict is None:
        raise AssertionError("only measured parts are read")
    answers = store.answers(stage=stage.name)
    content = np.array(store.contents(stage.name), np.str_)
    arm = Arm.SCREEN if bool((answers.arm == Arm.SCREEN.value).any()) else Arm.SHIFT
    done = (answers.arm == arm.value) & (answers.correct >= 0)
    kept = answers.where(done)
    fresh = _fresh(verdict, len(kept))
    return Length(
        rung=stage.name,
        kind=str(stage.design.get("kind", stage.kind)),
        tokens=stage.tokens,
        modulus=stage.modulus,
        design={name: stage.design[name] for name in _SETTLED if name in stage.design},
        partial=result.partial,
        verdict=verdict.verdict,
        reason=verdict.reason,
        period=verdict.period,
        measure=verdict.measure,
        answers=kept,
        fresh=fresh,
        level=_level(kept.where(fresh), result, store, shifted),
        content=content[done],
        groups=prompts_of(stage.design["sizes"]) if "sizes" in stage.design else None,
    )


def _fresh(verdict: Verdict, n: int) -> NDArray[np.bool_]:
    """Which of ``n`` answers came after the look that found something; all without such a look."""
    seen = verdict.looks[-1].n if verdict.fresh and verdict.looks else 0
    return np.arange(n) >= (seen if seen < n else 0)


def _stopped_early(result: Result) -> bool:
    """As for the verdict: a finding that repeats, with level and gap from later answers."""
    found = result.verdict
    return found is not None and found.verdict == "phase-sensitive" and found.fresh


def _level(later: Answers, result: Result, store: Store, shifted: Result | None) -> Answers:
    """``later`` with the answers to shifted contexts where the run's own verdict has them too."""
    name = "" if shifted is None else shifted.stage.name.replace("confirm", "needle")
    if shifted is None or name != result.stage.name or not _stopped_early(result):
        return later
    moved = store.answers(stage=shifted.stage.name)
    moved = moved.where((moved.arm == Arm.SHIFT.value) & (moved.correct >= 0))
    apart = int(later.context.max(initial=-1)) + 1
    return later.join(replace(moved, context=moved.context + apart))


def _of_document(document: VerdictFile, name: str) -> Evidence:
    lengths = tuple(
        _counted(length, document.measure)
        for length in document.per_length
        if length.rung.partition("-")[0] not in _NO_LENGTH and any(p.n for p in length.curve)
    )
    return Evidence(
        name=name,
        title=document.model or document.target,
        target=document.target,
        build=document.build,
        quant=document.quant,
        labels=document.labels,
        seed=document.seed,
        tokenizer=None,
        chat=None if document.template is None else document.template != "none",
        thinking=document.thinking,
        toy=document.demo,
        partial=document.partial,
        verdict=document.verdict,
        reason=document.reason,
        frozen=None,
        headline=document.rung,
        lengths=lengths,
        skipped=tuple((one.rung, one.why) for one in document.skipped),
    )


def _counted(length: LengthJson, measure: str) -> Length:
    """A curve's counts as one row an answer; every answer stands for itself."""
    residue = np.repeat(
        np.array([p.residue for p in length.curve], np.int64), [p.n for p in length.curve]
    )
    correct = np.concatenate(
        [np.arange(p.n) < p.correct for p in length.curve] or [np.zeros(0, bool)]
    )
    known = {"context_tokens": length.context_tokens, "records": length.records}
    answers = _rows(residue, correct.astype(np.int8))
    return Length(
        rung=length.rung,
        kind=length.design,
        tokens=length.context_tokens,
        modulus=length.modulus,
        design={
            **{name: value for name, value in known.items() if value is not None},
            "modulus": length.modulus,
        },
        partial=length.partial,
        verdict=length.verdict,
        reason=length.reason,
        period=length.period,
        measure=measure,
        answers=answers,
        fresh=np.ones(len(answers), bool),
        level=answers,
        content=None,
    )


def _rows(residue: NDArray[np.int64], correct: NDArray[np.int8]) -> Answers:
    """Answers of which nothing is known but residue and outcome; each is its own context."""
    n = len(residue)
    none, unknown = np.zeros(n, np.int64), np.full(n, np.nan)
    return Answers(
        position=residue,
        correct=correct,
        logprob=unknown,
        item=none,
        block=none,
        context=np.arange(n, dtype=np.int64),
        pad=none,
        arm=np.full(n, Arm.SCREEN.value),
        text=np.full(n, ""),
        margin=unknown,
        question=none,
        against=unknown,
    )


__all__ = ["Evidence", "Length", "Suite", "read_evidence"]
