"""From a shift run to its JSON document, every answer in it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvphase.report.shift import notes_of
from kvphase.report.shift_schema import SHIFT_SCHEMA, ShiftFile
from kvphase.version import __version__

if TYPE_CHECKING:
    from kvphase.runs.shift import Estimate, ShiftRun

_OF_MANIFEST = ("target", "runtime", "build", "model", "quant", "template", "thinking", "seed")
_OF_TASK = ("name", "expected", "against", "match", "tokens", "target", "start", "families")
_LOWEST = -1e9


def shift_document(run: ShiftRun) -> ShiftFile:
    """The document of a shift run."""
    found = asdict(run.found)
    found["notes"] = [str(note) for note in (*run.found.notes, *notes_of(run.plan))]
    flips, worst = found.pop("flips"), found.pop("worst")
    return ShiftFile.model_validate(
        {
            "schema": SHIFT_SCHEMA,
            "kvphase": __version__,
            **{name: run.manifest[name] for name in _OF_MANIFEST},
            "demo": run.manifest["toy"],
            "partial": run.partial,
            "full": run.plan["full"],
            "base": run.plan["base"],
            **found,
            "flipped": sum(flips),
            "worst": None if worst is None else {"shift": worst[0], "accuracy": worst[1]},
            "tasks": [
                {
                    **{name: task[name] for name in _OF_TASK},
                    "flips": flips[i],
                    "answers": _answers(run, i),
                }
                for i, task in enumerate(run.plan["tasks"])
            ],
            "tokens": {name: run.totals[name] for name in ("prefilled", "cached", "generated")},
            "seconds": round(float(run.totals["seconds"] or 0), 3),
        }
    )


def _answers(run: ShiftRun, item: int) -> list[dict[str, Any]]:
    """Every answer of a task in the order asked."""
    mine = run.answers.where(run.answers.item == item)
    graded = run.plan["tasks"][item]["expected"] is not None
    families = run.plan["tasks"][item]["families"]
    rows = []
    for i in range(len(mine)):
        arm, block, pad = str(mine.arm[i]), int(mine.block[i]), int(mine.pad[i])
        place = ("original", "head", "tail")[block] if arm == "shift" else "original"
        rows.append(
            {
                "arm": arm,
                "family": families[block] if arm in ("screen", "cold") else None,
                "place": place,
                "pad": pad,
                "shift": pad - run.plan["base"] if pad else None,
                "target": int(mine.position[i]),
                "question": int(mine.question[i]),
                "answer": str(mine.text[i]),
                "correct": _correct(int(mine.correct[i])) if graded else None,
                "logprob": _number(float(mine.logprob[i])) if graded else None,
                "against": _number(float(mine.against[i])),
                "finished": int(mine.correct[i]) >= 0,
            }
        )
    return rows


def _correct(value: int) -> bool | None:
    return None if value < 0 else bool(value)


def _number(value: float) -> float | None:
    """None for unknown; a censored score is the lowest number."""
    return None if math.isnan(value) else max(value, _LOWEST)


def as_json(document: ShiftFile) -> str:
    """The document as indented JSON in ASCII."""
    return json.dumps(document.model_dump(mode="json", by_alias=True), indent=2)


def estimate_json(estimate: Estimate) -> str:
    """``--plan --json``."""
    parts = [
        {
            "part": name,
            "requests": price.requests,
            "evaluated": price.evaluated,
            "cached": price.cached,
            "generated": price.generated,
            "seconds": round(price.seconds(estimate.speed), 2),
        }
        for name, price in estimate.parts
    ]
    values = {
        "schema": "kvphase/shift-plan@1",
        "rate": round(estimate.speed.rate, 1),
        "seconds_each": round(estimate.speed.each, 4),
        "fits": estimate.lacking is None,
        "why_not": estimate.lacking,
        "parts": parts,
    }
    return json.dumps(values, indent=2)
