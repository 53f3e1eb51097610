"""Are targets found less often early, in the middle or late in the context, at equal phase?

A real effect of many models; it is told so that it is not taken for phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.causes.base import LEVEL, Cause, Finding, Price
from kvphase.causes.flips import seen_from
from kvphase.causes.scene import MODULUS, RECORDS
from kvphase.causes.screen import asked, thirds
from kvphase.stats.score import scores
from kvphase.stats.series import Series, cells

if TYPE_CHECKING:
    from kvphase.causes.scene import Scene
    from kvphase.types import Flow

PREDICTION = "Accuracy differs between thirds of the context within the same residues."
SMALLEST = 0.30
LEAST = 0.10
CONTEXTS = 20
NAME = "depth"


def test(scene: Scene) -> Flow[Finding]:
    """The generalised Cochran-Mantel-Haenszel test of thirds, within residues of the target."""
    answers = yield from asked(scene, 0, CONTEXTS)
    done = answers.where(answers.correct >= 0)
    third = thirds(done)
    n = len(done)
    series = Series(
        phase=third,
        along=done.position,
        outcome=done.correct.astype(np.float64),
        weight=np.ones(n),
        stratum=cells(done.position % MODULUS),
        fitted=np.zeros(n),
        nuisance=np.zeros((n, 0)),
    )
    prepared = scores(series, (3,))
    p = 1.0
    if prepared.periods:
        p = float(np.exp(prepared.log_p(series.outcome[None, :] @ prepared.matrix)[0, 0]))
    count = np.maximum(np.bincount(third, minlength=3), 1)
    rates = np.bincount(third, done.correct, minlength=3) / count
    effect = float(rates.max() - rates.min())
    found = p <= LEVEL and effect >= LEAST
    early, middle, late = (100 * float(rate) for rate in rates)
    return Finding(
        cause=NAME,
        status="found" if found else "not-found",
        evidence=message("diagnose.depth", early=early, middle=middle, late=late, n=n, p=p),
        would_have_seen=seen_from(SMALLEST, "depth"),
        p_value=p,
        effect_pp=100 * effect,
        n=n,
    )


CAUSE = Cause(NAME, test, SMALLEST, LEAST, Price(CONTEXTS * RECORDS, CONTEXTS))
