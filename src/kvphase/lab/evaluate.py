"""Measure a toy model's lookup accuracy by the position of the asked key, as a record beside it.

Every question stands alone right after four demonstrations and is answered from a fork of the
context's prefix cache. Demonstrated records are not asked, nor any that the question's local
window still reaches. Filler at the end of the context makes up for start offset and spacers, so
that every question of a design stands at the same position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvphase.lab.data import Context, Design, Lookups, load_vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.runtimes.toy import Model

__all__ = ["Results", "evaluate", "summarise"]

DEMONSTRATIONS = 4


class Results(NamedTuple):
    """One row an answer."""

    positions: NDArray[np.int64]
    """Position of the asked key, ``[Q]``."""
    correct: NDArray[np.bool_]
    """Whether the most likely next token was the value, ``[Q]``."""
    contexts: NDArray[np.int64]
    """Number of the context, ``[Q]``."""


def evaluate(model: Model, records: int, design: Design, contexts: int, seed: int) -> Results:
    """Ask every eligible record of ``contexts`` fresh contexts once, each question alone.

    There may be none: in contexts of hardly more records than are demonstrated.
    """
    data, rng = Lookups(load_vocabulary()), np.random.default_rng([seed, records])
    rows: list[tuple[int, bool, int]] = []
    for number in range(contexts):
        context = data.context(rng, records, design, level=True)
        order = rng.permutation(records)
        shown, asked = order[:DEMONSTRATIONS], order[DEMONSTRATIONS:]
        prefix = context.ids + data.ask(context, shown.tolist())
        for index, right in _answers(model, data, context, prefix, asked):
            rows.append((int(context.positions[index]), right, number))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Results(table[:, 0], table[:, 1].astype(bool), table[:, 2])


def _answers(
    model: Model,
    data: Lookups,
    context: Context,
    prefix: list[int],
    asked: NDArray[np.int64],
) -> list[tuple[int, bool]]:
    cache, answers = model.start(), []
    model.extend(cache, prefix)
    reach = len(prefix) + 2 - model.local_window  # the question is two tokens
    for index in asked.tolist():
        if context.positions[index] + 2 >= reach:  # the value is still in the local window
            continue
        question = data.record(int(context.keys[index]), int(context.values[index]))[:2]
        logits = model.extend(cache.fork(), question)[-1]
        answers.append((index, int(logits.argmax()) == int(context.values[index])))
    return answers


def summarise(results: Results, modulus: int = 8) -> dict[str, Any]:
    """Return number, mean, and accuracy and number by residue of the key's position.

    The gap is between residues that were asked at all.
    """
    residues = results.positions % modulus
    asked = np.bincount(residues, minlength=modulus)
    right = np.bincount(residues, results.correct, minlength=modulus)
    accuracy = right / np.maximum(asked, 1)
    return {
        "questions": len(residues),
        "mean": round(float(results.correct.mean()), 4),
        "gap_pp": round(100 * float(np.ptp(accuracy[asked > 0])), 1),
        f"by_residue_mod_{modulus}": np.round(accuracy, 4).tolist(),
        "asked": asked.tolist(),
    }
