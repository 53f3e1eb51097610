"""Which phases a model finds well: from a run, a ``verdict.json``, or a published model."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kvphase.catalogue import message
from kvphase.errors import UsageError
from kvphase.runs.evidence import read_evidence
from kvphase.stats.curve import point

if TYPE_CHECKING:
    from kvphase.runs.evidence import Evidence, Length
    from kvphase.types import CurvePoint

PUBLISHED = "published:"
Says = Literal["phase", "flat", "nothing"]
_FLAT = ("not-detected",)
_STRIDES = {"V4.1": (2, 2), "V4-": (4, 8)}
"""Stride and window of the published needle tests' models by their names: DeepSeek-V4 pools eight
tokens every four, V4.1 two every two."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a model's phases."""

    name: str
    """The file's, or the published model's."""
    model: str
    foreign: bool
    """Somebody else's published measurement, not the reader's own."""
    demo: bool
    says: Says
    """``phase``: there is a curve to place by; ``flat``: nothing is to be gained; ``nothing``: it
    cannot be told."""
    reason: str
    """The verdict's own reason; for a published model where it is from."""
    verdict: str | None
    """None for a published model."""
    period: int | None
    window: int | None
    """Where it is known."""
    mean: float
    curve: tuple[CurvePoint, ...]
    """Accuracy at each residue modulo the period, every residue once; empty without a period."""

    def at(self, position: int) -> CurvePoint:
        """The point of the phase at which ``position`` stands; only where there is a curve."""
        return self.curve[position % len(self.curve)]


def read_profile(name: str) -> Profile:
    """A profile by the path of a run file or a ``verdict.json``, or ``published:NAME``.

    Raises:
        UsageError: there is no such file or model, or the file holds no needles.
    """
    if name.lower().startswith(PUBLISHED):
        return _published(name[len(PUBLISHED) :])
    evidence = read_evidence(Path(name))
    by_rung = {length.rung: length for length in evidence.lengths}
    if not by_rung:
        raise UsageError(message("layout.no-needles", name=evidence.name))
    length = by_rung.get(evidence.headline, evidence.lengths[-1])
    return _measured(evidence, length)


def _measured(evidence: Evidence, length: Length) -> Profile:
    # What the whole run concluded, not the rung alone: a confirmation may have refuted it.
    on_headline = length.rung == evidence.headline
    verdict = evidence.verdict if on_headline else length.verdict
    reason = evidence.reason if on_headline else length.reason
    found = verdict == "phase-sensitive" and length.period is not None
    level = length.level
    curve: tuple[CurvePoint, ...] = ()
    if found and length.period is not None:
        residue = level.position % length.period
        counts = [residue == r for r in range(length.period)]
        if not all(bool(one.any()) for one in counts):
            raise UsageError(message("layout.hole", name=evidence.name))
        curve = tuple(
            point(r, int(one.sum()), int(level.correct[one].sum())) for r, one in enumerate(counts)
        )
    says: Says = "phase" if curve else "flat" if verdict in _FLAT else "nothing"
    return Profile(
        name=evidence.name,
        model=evidence.title,
        foreign=False,
        demo=evidence.toy,
        says=says,
        reason=reason,
        verdict=verdict,
        period=length.period if curve else None,
        window=None,
        mean=float(np.mean(level.correct)) if len(level) else 0.0,
        curve=curve,
    )


def published_names() -> list[str]:
    """Names that ``published:`` knows, as they are to be typed."""
    return [_slug(model["name"]) for model in _models()]


def _models() -> list[dict[str, Any]]:
    text = (resources.files("kvphase.data") / "published.json").read_text(encoding="utf-8")
    data = json.loads(text)
    found = []
    for test in ("niah", "controlled"):
        for model in data[test]["models"]:
            n = model.get("n", data[test].get("n_per_residue"))
            counts = model.get("correct")
            if counts is None:
                counts = [round(percent * n / 100) for percent in model["acc"]]
            source = data[test]["source"]
            found.append({**model, "n": n, "correct": counts, "source": source})
    return found


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def _published(name: str) -> Profile:
    """The model of that name; of a beginning that several share the one post-trained model."""
    wanted = _slug(name)
    models = _models()
    exact = [m for m in models if _slug(m["name"]) == wanted]
    begun = [m for m in models if wanted and _slug(m["name"]).startswith(wanted)]
    if len(begun) > 1:
        # The base model is not what people use.
        begun = [m for m in begun if m.get("stage") == "post-trained"]
    chosen = exact or begun
    if len(chosen) != 1:
        known = ", ".join(published_names())
        raise UsageError(message("layout.no-published", name=name[:60], known=known))
    return _foreign(chosen[0])


def _foreign(model: dict[str, Any]) -> Profile:
    stride, window = model["stride"], model.get("window")
    sizes = next((size for part, size in _STRIDES.items() if part in model["name"]), None)
    if window is None and sizes is not None and sizes[0] == stride:
        window = sizes[1]
    n, counts = model["n"], model["correct"]
    curve: tuple[CurvePoint, ...] = ()
    if stride is not None:
        cycles = len(counts) // stride
        curve = tuple(point(r, n * cycles, sum(counts[r::stride])) for r in range(stride))
    reason = message("layout.published-source", source=model["source"])
    return Profile(
        name=PUBLISHED + _slug(model["name"]),
        model=model["name"],
        foreign=True,
        demo=False,
        says="phase" if curve else "flat",
        reason=reason,
        verdict=None,
        period=stride,
        window=window,
        mean=sum(counts) / (n * len(counts)),
        curve=curve,
    )


__all__ = ["PUBLISHED", "Profile", "published_names", "read_profile"]
