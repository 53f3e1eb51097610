"""The parts of a run: what each was to ask, and what its answers say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kvphase.catalogue import Message, message
from kvphase.probes import dataset, flip
from kvphase.stats import measure
from kvphase.stats.measure import relevel
from kvphase.stats.paired import confirm
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runs.store import Store
    from kvphase.stats.confirmed import Confirmation
    from kvphase.types import Answers, Verdict

StageKind = Literal["flip", "pilot", "needle", "confirm", "asis", "shifted"]
ELSEWHERE = ("follows-question", "follows-distance")
REFUTED = (*ELSEWHERE, "not-confirmed")


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of a run as it stands in the manifest, frozen before its first ask."""

    name: str
    """``flip``, ``pilot-TOKENS``, ``needle-TOKENS``, ``confirm-TOKENS``: also the asks' stage."""
    kind: StageKind
    questions: int
    """Asks planned."""
    prefills: int
    tokens: int | None
    """Of a prompt; None where prompts differ in length."""
    modulus: int
    seed: int
    design: dict[str, Any]
    looks: tuple[int, ...] = ()
    balance: dict[str, Any] | None = None
    adapted: bool = False
    state: Literal["asking", "done", "stopped"] = "asking"

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Stage:
        """As the manifest holds it."""
        return cls(**{**values, "looks": tuple(values["looks"])})


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rung that was not climbed, and why."""

    rung: str
    why: str

    def as_json(self) -> dict[str, Any]:
        """For the manifest; a message keeps its key, so that any language can say it."""
        if isinstance(self.why, Message):
            return {"rung": self.rung, "key": self.why.key, "values": self.why.values}
        return {"rung": self.rung, "why": self.why}

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Skipped:
        """As the manifest holds it."""
        if "key" in values:
            return cls(values["rung"], message(values["key"], **values["values"]))
        return cls(values["rung"], values["why"])


@dataclass(frozen=True, slots=True)
class Result:
    """A stage and what its answers say."""

    stage: Stage
    verdict: Verdict | None
    """Of a flip or needles; None before the first answer."""
    confirmation: Confirmation | None
    totals: dict[str, int | float | None]
    """Of the stage; as `Store.totals`."""

    @property
    def partial(self) -> bool:
        """Whether asks of it are still missing."""
        return self.stage.state != "done"


def read_stages(manifest: dict[str, Any]) -> list[Stage]:
    """The stages of a run in the order begun."""
    return [Stage.of_json(values) for values in manifest.get("stages", [])]


def measured(stage: Stage, store: Store) -> Result:
    """What the stored answers of a stage say."""
    answers = store.answers(stage=stage.name)
    totals = store.totals(stage.name)
    if stage.kind == "confirm":
        enough = len(answers) > 0
        return Result(stage, None, confirmed(stage, answers) if enough else None, totals)
    has_screen = bool((answers.arm == Arm.SCREEN.value).any())
    verdict = judged(stage, answers) if has_screen and not _unjudged(stage) else None
    return Result(stage, verdict, None, totals)


def _unjudged(stage: Stage) -> bool:
    """Pilots, and a file's prompts as they stand where its positions are not to be trusted."""
    return stage.kind == "pilot" or (stage.kind == "asis" and stage.design["spread"] != "spread")


def judged(stage: Stage, answers: Answers) -> Verdict:
    """The verdict over a flip's, a file's or needles' answers."""
    if stage.kind == "flip":
        return flip.judged(answers, stage.seed)
    if stage.kind in ("asis", "shifted"):
        return dataset.judged(stage.design, answers, stage.seed)
    return measure(
        answers,
        kind=stage.design["kind"],
        modulus=stage.modulus,
        seed=stage.seed,
        looks=stage.looks,
    )


def confirmed(stage: Stage, answers: Answers) -> Confirmation:
    """What a confirmation's answers say."""
    return confirm(
        answers,
        stage.design["period"],
        expected_pp=stage.design["expected_pp"],
        seed=stage.seed,
    )


def pooled(result: Result, shifted: Result, store: Store) -> Result:
    """A finding with level and gap from every answer that came after it, shifted contexts too.

    An early look leaves few answers for them; the confirmation's had no part in the finding and
    come from the same design, their targets at all residues alike.
    """
    verdict, stage = result.verdict, result.stage
    if verdict is None or verdict.verdict != "phase-sensitive" or not verdict.fresh:
        return result
    screen = store.answers(stage=stage.name)
    screen = screen.where((screen.arm == Arm.SCREEN.value) & (screen.correct >= 0))
    after = screen.where(np.arange(len(screen)) >= verdict.looks[-1].n)
    moved = store.answers(stage=shifted.stage.name)
    moved = moved.where(moved.arm == Arm.SHIFT.value)
    contexts = int(screen.context.max()) + 1
    later = after.join(replace(moved, context=moved.context + contexts))
    return replace(result, verdict=relevel(verdict, later, seed=stage.seed))


def headline(results: Sequence[Result]) -> tuple[Result, Verdict] | None:
    """The rung that a run's verdict rests on, and that verdict in the light of the confirmation.

    Needles before the flip; of needles the shortest that found phase, else the longest that could
    rule it out, else the one with most answers. Of a file's prompts those that were shifted.
    """
    told = [(r, r.verdict) for r in results if r.verdict is not None]
    needles = [(r, v) for r, v in told if r.stage.kind == "needle"]
    for wanted, order in (("phase-sensitive", 1), ("not-detected", -1)):
        for result, verdict in needles[::order]:
            if verdict.verdict == wanted:
                return result, _weighed(result, verdict, results)
    if needles:
        result, verdict = max(needles, key=lambda pair: pair[1].n)
        return result, _weighed(result, verdict, results)
    return told[-1] if told else None


def _weighed(result: Result, verdict: Verdict, results: Sequence[Result]) -> Verdict:
    """A finding that the confirmation refutes is no phase; what it found instead comes first."""
    name = result.stage.name.replace("needle", "confirm")
    found = next((r.confirmation for r in results if r.stage.name == name), None)
    if found is None or found.status not in REFUTED:
        return verdict
    if verdict.verdict == "phase-sensitive":
        reason = message("run.refuted", period=verdict.period, why=found.reason)
    elif found.status in ELSEWHERE:
        reason = message("run.elsewhere", why=found.reason)
    else:
        return verdict
    return replace(
        verdict,
        verdict="unreliable",
        reason=reason,
        would_settle=message("run.refuted-settle"),
        period=None,
    )
