"""Questions saved by looking early, and what log-probabilities would save, at equal error."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rows import Row
from scipy import stats

import kvphase
from kvphase.probes.needle import FEWEST_AFTER
from kvphase.runs.store import Store
from kvphase.stats.looks import looks_at
from kvphase.stats.measure import find
from kvphase.stats.score import scores
from kvphase.stats.series import per_answer
from kvphase.stats.simulate import answer, insequence, periodic
from kvphase.types import Arm

CONTEXTS, RECORDS = 64, 24
GAPS = (0.0, 0.25, 0.40)
RUNS, SMALL_RUNS = 40, 10
PERIOD = 4


def looked(gap: float, runs: int) -> dict[str, Any]:
    """Invented models with one weak slot of four: found, and questions asked, both ways."""
    truth = periodic(0.7, [0.0, 0.0, 0.0, -gap])
    looks = looks_at(CONTEXTS)
    found = {"whole": 0, "early": 0}
    asked = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, int(100 * gap), 41])
        answers = answer(insequence(rng, contexts=CONTEXTS, records=RECORDS), truth, rng)
        early = find(answers, looks, kind="insequence", modulus=8, rng=rng)
        contexts = CONTEXTS
        if early.replicates:
            at = looks[len(early.looks) - 1]
            contexts = min(CONTEXTS, at + max(-(-looks[0] // 2), FEWEST_AFTER))
        asked += contexts * RECORDS
        found["early"] += early.replicates
        found["whole"] += find(answers, kind="insequence", modulus=8, rng=rng).replicates
    return {"gap_pp": 100 * gap, "runs": runs, **found, "share": asked / runs / CONTEXTS / RECORDS}


def by_scores(questions: int) -> dict[str, Any]:
    """The score statistic of period 4 from right and wrong, and from ranks of log-probabilities.

    Less its degrees of freedom it grows in proportion to the questions: the ratio is how many more
    of them right and wrong need for the same power at the same level.
    """
    settings = kvphase.Settings(
        seed=3, questions=questions, cold=0, early=False, confirm="never", rungs=("405",)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.kvphase"
        kvphase.check("toy:w8s4", settings, out=path, budget=kvphase.Budget())
        with Store.read(path) as store:
            answers = store.answers()
    screen = answers.where((answers.arm == Arm.SCREEN.value) & np.isfinite(answers.logprob))
    series = per_answer(screen)
    ranked = replace(series, outcome=stats.rankdata(screen.logprob) / len(screen))
    found = {}
    for name, one in (("right", series), ("ranked", ranked)):
        prepared = scores(one, (PERIOD,))
        statistic = float(prepared.statistics(one.outcome[None, :] @ prepared.matrix)[0, 0])
        found[name] = statistic - float(prepared.ranks[0])
    return {"n": len(screen), **found, "times": found["ranked"] / found["right"]}


def rows(*, small: bool) -> list[Row]:
    """One row a gap, one for the scores."""
    made = []
    for gap in (0.0, 0.40) if small else GAPS:
        r = looked(gap, SMALL_RUNS if small else RUNS)
        # Where nothing is, nothing is saved and nothing may be lost; a large gap ends half way.
        most = 1.0 if gap < 0.4 else 0.75
        made.append(
            Row(
                "early looks",
                f"{r['gap_pp']:.0f} points, {CONTEXTS * RECORDS:,} questions, {r['runs']} models",
                f"{r['share']:.0%} of the questions; found {r['early']}, all asked {r['whole']}",
                f"<= {most:.0%}",
                r["share"] <= most,
                r,
            )
        )
    r = by_scores(600 if small else 3_600)
    made.append(
        Row(
            "scores",
            f"toy:w8s4, {r['n']:,} questions: log-probabilities ranked against right or wrong",
            f"statistic beyond chance {r['ranked']:.0f} against {r['right']:.0f}: right or wrong "
            f"needs {r['times']:.1f} times the questions",
            data=r,
        )
    )
    return made
