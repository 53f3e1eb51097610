"""From a run, or from analysed rows, to ``verdict.json``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kvphase.errors import StoreError
from kvphase.report.unusable import unusable
from kvphase.schema import VERDICT_SCHEMA, VerdictFile
from kvphase.version import __version__

if TYPE_CHECKING:
    from kvphase.runs.check import Run
    from kvphase.runs.stages import Result
    from kvphase.types import Verdict

_OF_LENGTH = (
    "verdict",
    "reason",
    "would_settle",
    "period",
    "p_value",
    "mean",
    "worst",
    "best",
    "mde_pp",
    "gap",
    "curve",
    "n",
    "contexts",
    "looks",
    "fresh",
    "audit",
    "notes",
)
_OF_MANIFEST = (
    "target",
    "runtime",
    "build",
    "model",
    "quant",
    "template",
    "thinking",
    "labels",
    "seed",
)


def run_document(run: Run) -> VerdictFile:
    """The document of a measured run."""
    manifest, stage = run.manifest, run.rung.stage
    return _document(
        run.verdict,
        **{name: manifest[name] for name in _OF_MANIFEST},
        design=stage.design["kind"],
        context_tokens=stage.tokens,
        records=stage.design.get("records"),
        adapted=stage.adapted,
        partial=run.partial,
        tokens=_tokens(run.totals),
        seconds=round(float(run.totals["seconds"] or 0), 3),
        balance=stage.balance,
        demo=manifest["toy"],
        rung=stage.name,
        per_length=[_length(result) for result in run.results if result.verdict is not None],
        skipped=[{"rung": one.rung, "why": one.why} for one in run.skipped],
        confirm=_confirm(run),
        traffic=None if manifest.get("traffic") is None else bool(manifest["traffic"]),
        digest=run_digest(run),
        dataset=_dataset(run),
        rotation_known=manifest.get("endpoint", {}).get("offset_known", True),
    )


def _dataset(run: Run) -> dict[str, Any] | None:
    """The file that was asked, if one was."""
    held = run.manifest.get("dataset")
    if held is None:
        return None
    shifted = [r.stage.design["prompts"] for r in run.results if r.stage.kind == "shifted"]
    kept = ("file", "format", "digest", "entries", "drawn", "usable", "facts", "residues")
    right, asked = held.get("asis", (0, 0))
    return {
        **{name: held[name] for name in (*kept, "spread", "at")},
        "unusable": [
            {"why": str(one.why), "count": one.count, "line": one.line} for one in unusable(held)
        ],
        "prompts": sum(shifted),
        "mean_as_is": right / asked if asked else None,
        "n_as_is": asked,
    }


def rows_document(
    verdict: Verdict, name: str, seed: int, *, rotation_known: bool = True
) -> VerdictFile:
    """The document of results that were analysed, not asked.

    Args:
        verdict: What was found.
        name: Of the file.
        seed: Of the test.
        rotation_known: Positions are those of the final prompt, not short of a template's head.
    """
    nothing = dict.fromkeys(_OF_MANIFEST)
    about: dict[str, Any] = {
        **nothing,
        "target": name,
        "labels": {},
        "seed": seed,
        "design": "imported",
        "context_tokens": None,
        "records": None,
        "adapted": False,
        "partial": False,
        "tokens": {"prefilled": None, "cached": None, "generated": None},
        "seconds": None,
        "balance": None,
        "rotation_known": rotation_known,
    }
    found = asdict(verdict)
    shared = {
        name: about[name]
        for name in (
            "design",
            "context_tokens",
            "records",
            "adapted",
            "partial",
            "tokens",
            "seconds",
            "balance",
        )
    }
    length = {name: found[name] for name in _OF_LENGTH}
    return _document(
        verdict,
        **about,
        demo=False,
        rung="imported",
        per_length=[{"rung": "imported", "modulus": verdict.modulus, **shared, **length}],
        skipped=[],
        confirm=None,
        traffic=None,
        digest=None,
    )


def run_digest(run: Run) -> str:
    """Twelve characters by which a picture can be told to be of this run.

    Over what was asked of what (model, build, design, seed) and what came back (right answers and
    answers at each residue of every part).
    """
    told = {
        name: run.manifest[name]
        for name in ("kvphase", "model", "quant", "build", "template", "tokenizer", "seed")
    }
    parts = [[r.stage.name, r.stage.design, _answered(r)] for r in run.results]
    text = json.dumps([told, parts], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _answered(result: Result) -> list[list[int]]:
    found = result.verdict or result.confirmation
    return [] if found is None else [[p.residue, p.n, p.correct] for p in found.curve]


def _length(result: Result) -> dict[str, Any]:
    """One rung."""
    stage, found = result.stage, asdict(result.verdict) if result.verdict else {}
    return {
        "rung": stage.name,
        "context_tokens": stage.tokens,
        "design": stage.design["kind"],
        "records": stage.design.get("records"),
        "modulus": stage.modulus,
        "adapted": stage.adapted,
        "partial": result.partial,
        "balance": stage.balance,
        "tokens": _tokens(result.totals),
        "seconds": round(float(result.totals["seconds"] or 0), 3),
        **{name: found[name] for name in _OF_LENGTH},
    }


def _confirm(run: Run) -> dict[str, Any] | None:
    result = run.confirmation
    if result is None or result.confirmation is None:
        return None
    rung = result.stage.name.replace("confirm", "needle")
    return {"rung": rung, "partial": result.partial, **asdict(result.confirmation)}


def _tokens(totals: dict[str, int | float | None]) -> dict[str, int | float | None]:
    return {name: totals[name] for name in ("prefilled", "cached", "generated")}


def _document(verdict: Verdict, **about: object) -> VerdictFile:
    try:
        return VerdictFile.model_validate(
            {
                "schema": VERDICT_SCHEMA,
                "kvphase": __version__,
                "rotation_known": True,
                **asdict(verdict),
                **about,
            }
        )
    except ValidationError as error:
        raise StoreError("the run file is damaged: it does not hold what a run writes") from error


def as_json(document: VerdictFile) -> str:
    """The document as indented JSON in ASCII, keys in the schema's order.

    ASCII, so that any console can carry it and nothing in a name can drive a terminal.
    """
    return json.dumps(document.model_dump(mode="json", by_alias=True), indent=2)
