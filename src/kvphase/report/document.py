"""From a run, or from analysed rows, to ``verdict.json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from kvphase.schema import VERDICT_SCHEMA, VerdictFile
from kvphase.version import __version__

if TYPE_CHECKING:
    from kvphase.runs.check import Run
    from kvphase.types import Verdict


def run_document(run: Run) -> VerdictFile:
    """The document of a measured run."""
    manifest, design = run.manifest, run.manifest["design"]
    return _document(
        run.verdict,
        target=manifest["target"],
        runtime=manifest["runtime"],
        build=manifest["build"],
        model=manifest["model"],
        quant=manifest["quant"],
        template=manifest["template"],
        thinking=manifest["thinking"],
        labels=manifest["labels"],
        design=design["kind"],
        context_tokens=design["context_tokens"],
        records=design["records"],
        seed=manifest["seed"],
        partial=run.partial,
        tokens={name: run.totals[name] for name in ("prefilled", "cached", "generated")},
        seconds=round(float(run.totals["seconds"] or 0), 3),
        balance=manifest["balance"],
        demo=manifest["toy"],
    )


def rows_document(verdict: Verdict, name: str, seed: int) -> VerdictFile:
    """The document of results that were analysed, not asked."""
    return _document(
        verdict,
        target=name,
        runtime=None,
        build=None,
        model=None,
        quant=None,
        template=None,
        thinking=None,
        labels={},
        design="imported",
        context_tokens=None,
        records=None,
        seed=seed,
        partial=False,
        tokens={"prefilled": None, "cached": None, "generated": None},
        seconds=None,
        balance=None,
        demo=False,
    )


def _document(verdict: Verdict, **about: object) -> VerdictFile:
    found = asdict(verdict)
    length = {
        name: found[name] for name in ("verdict", "period", "p_value", "mean", "worst", "gap")
    }
    return VerdictFile.model_validate(
        {
            "schema": VERDICT_SCHEMA,
            "kvphase": __version__,
            "adapted": False,
            "rotation_known": True,
            "per_length": [{"context_tokens": about["context_tokens"], **length}],
            **found,
            **about,
        }
    )


def as_json(document: VerdictFile) -> str:
    """The document as indented JSON, keys in the schema's order."""
    return document.model_dump_json(by_alias=True, indent=2)
