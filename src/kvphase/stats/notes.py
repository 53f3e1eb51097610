"""What a reader should know besides the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kvphase.catalogue import message
from kvphase.stats.decision import HIGHEST_MEAN
from kvphase.stats.period import detect
from kvphase.stats.series import cells, per_answer, screen_candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kvphase.types import Answers, DesignKind

DEPTH_LEVEL = 0.001
DEPTH_PP = 5.0
KNOWN_LOGPROBS = 0.9
"""Share of answers whose log-probability must be known before it is looked at."""


def notes(
    screen: Answers,
    *,
    kind: DesignKind,
    modulus: int,
    shared: int,
    alpha: float,
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Notes on a screen: unfinished answers, periods out of reach, depth, log-probabilities."""
    done = screen.where(screen.correct >= 0)
    found = [_unfinished(screen), _shared(shared, modulus)]
    if kind == "insequence":
        found += [_depth(done), _logprob(done, alpha, rng)]
    return tuple(note for note in found if note)


def _unfinished(screen: Answers) -> str | None:
    cut = int((screen.correct < 0).sum())
    return message("note.unfinished", cut=cut, asked=len(screen)) if cut else None


def _shared(shared: int, modulus: int) -> str | None:
    if shared == modulus:
        return None
    return message("note.shared", shared=shared)


def _depth(done: Answers) -> str | None:
    """Accuracy over quarters of the positions of each context; a note, never a verdict."""
    from scipy import special

    if len(done) < 40:
        return None
    quarter = _quarters(done)
    n = np.bincount(quarter, minlength=4)
    right = np.bincount(quarter, weights=done.correct, minlength=4)
    mean = right.sum() / n.sum()
    if not 0 < mean < 1 or not n.all():
        return None
    statistic = float((np.square(right - n * mean) / (n * mean * (1 - mean))).sum())
    shares = 100 * right / n
    if special.chdtrc(3, statistic) > DEPTH_LEVEL or np.ptp(shares) < DEPTH_PP:
        return None
    return message("note.depth", shares=", ".join(f"{share:.0f}%" for share in shares))


def _quarters(done: Answers) -> NDArray[np.int64]:
    """Quarter 0..3 of each answer by its rank among the positions of its context, shape (n,)."""
    context = cells(done.context)
    order = np.lexsort((done.position, context))
    size = np.bincount(context)
    start = np.cumsum(size) - size
    rank = np.empty(len(done), dtype=np.int64)
    rank[order] = np.arange(len(done)) - start[context[order]]
    quarter: NDArray[np.int64] = 4 * rank // size[context]
    return quarter


def _logprob(done: Answers, alpha: float, rng: np.random.Generator) -> str | None:
    """Near the ceiling log-probabilities may show what right and wrong cannot."""
    from scipy import stats

    if not len(done) or done.correct.mean() <= HIGHEST_MEAN:
        return None
    known = done.where(~np.isnan(done.logprob))
    if len(known) < KNOWN_LOGPROBS * len(done):
        return None
    # Ranks, so that censored ones (-inf) are simply the lowest.
    series = replace(per_answer(known), outcome=stats.rankdata(known.logprob))
    found = detect(series, screen_candidates(series), rng)
    if found.p_value is None or found.p_value > alpha:
        return None
    return message("note.logprob", period=found.period, p=found.p_value)
