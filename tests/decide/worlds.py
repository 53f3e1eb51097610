"""Runs of invented models as ``compare`` and ``gate`` read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.runs.evidence import Evidence, Length
from kvphase.stats.simulate import Layout, answer, insequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.stats.simulate import Truth
    from kvphase.types import Answers

WEAK = [0.06, 0.06, -0.24, 0.06] * 2
"""A profile over eight residues with period 4, in fractions."""


def contents(layout: Layout, seed: int) -> NDArray[np.str_]:
    """One name a question; other seeds, other questions."""
    pairs = zip(layout.context, layout.item, strict=True)
    return np.array([f"{seed}:{context}:{item}" for context, item in pairs], np.str_)


def length(answers: Answers, content: NDArray[np.str_] | None, **changed: Any) -> Length:  # noqa: ANN401 - fields of Length
    """One length that measured ``answers``."""
    values: dict[str, Any] = {
        "rung": "needle-2048",
        "kind": "insequence",
        "tokens": 2048,
        "modulus": 8,
        "design": {"context_tokens": 2048, "records": 64, "modulus": 8, "window": 128},
        "partial": False,
        "verdict": "not-detected",
        "reason": "nothing",
        "period": None,
        "measure": "accuracy",
        "answers": answers,
        "fresh": np.ones(len(answers), bool),
        "level": answers,
        "content": content,
    }
    return Length(**{**values, **changed})


def run(*lengths: Length, name: str = "a.kvphase", **changed: Any) -> Evidence:  # noqa: ANN401 - fields of Evidence
    """A finished run with a named probe that holds ``lengths``."""
    values: dict[str, Any] = {
        "name": name,
        "title": "model",
        "target": "http://127.0.0.1:8080",
        "build": None,
        "quant": None,
        "labels": {},
        "seed": 0,
        "tokenizer": "t",
        "chat": False,
        "thinking": "off",
        "toy": False,
        "partial": False,
        "verdict": "not-detected",
        "reason": "nothing",
        "frozen": True,
        "headline": "needle-2048",
        "lengths": lengths,
        "skipped": (),
    }
    return Evidence(**{**values, **changed})


def by_question(questions: int) -> Truth:
    """Some questions are easy and some are hard, for every model that is asked them.

    `kvphase.stats.simulate.by_item` gives the n-th question of all contexts one ability, drawn
    anew for each run: two runs of it are two models of different level.
    """

    def truth(layout: Layout, _: np.random.Generator) -> NDArray[np.float64]:
        return np.random.default_rng([8, questions]).beta(0.8, 0.4, size=len(layout.position))

    return truth


def measured(
    truth: Truth,
    seed: int,
    *,
    questions: int = 0,
    contexts: int = 16,
    records: int = 64,
    name: str = "a.kvphase",
    **changed: Any,  # noqa: ANN401 - fields of Length
) -> Evidence:
    """A run of an invented model: ``questions`` decides what is asked, ``seed`` the answers."""
    layout = insequence(
        np.random.default_rng([5, questions]), contexts=contexts, records=records, modulus=8
    )
    answers = answer(layout, truth, np.random.default_rng([6, questions, seed]))
    return run(length(answers, contents(layout, questions), **changed), name=name, seed=questions)
