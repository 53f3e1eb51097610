"""Chooses the next token as llama-server does: a chain of cuts, then a draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kvphase.runtimes.toy import Scores
    from kvphase.serve.settings import Settings

__all__ = ["choose"]


def choose(scores: Scores, settings: Settings, random: np.random.Generator) -> int:
    """The next token: the best at temperature 0, else drawn from what the samplers leave.

    Args:
        scores: The model's scores.
        settings: The request's settings.
        random: The request's own generator.
    """
    if settings.temperature <= 0:
        return scores.best
    order = np.argsort(-scores.logprobs, kind="stable")
    logits = scores.logprobs[order]  # best first; every cut keeps a head of it
    for name in settings.samplers:
        if name in _STEPS:
            logits = _STEPS[name](logits, settings)
    return int(order[random.choice(len(logits), p=_softmax(logits))])


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logits - logits[0])
    return np.asarray(weights / weights.sum())


def _top_k(logits: NDArray[np.float64], settings: Settings) -> NDArray[np.float64]:
    return logits[: settings.top_k] if settings.top_k > 0 else logits


def _top_p(logits: NDArray[np.float64], settings: Settings) -> NDArray[np.float64]:
    """Keep the shortest head that holds ``top_p`` of the probability."""
    before = np.cumsum(_softmax(logits)) - _softmax(logits)
    return logits[: max(1, int((before < settings.top_p).sum()))]


def _min_p(logits: NDArray[np.float64], settings: Settings) -> NDArray[np.float64]:
    """Keep what is at least ``min_p`` times as probable as the best."""
    return logits[: max(1, int((np.exp(logits - logits[0]) >= settings.min_p).sum()))]


def _temperature(logits: NDArray[np.float64], settings: Settings) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # near 0 all but the best become impossible
        return logits / settings.temperature


_STEPS: dict[str, Callable[[NDArray[np.float64], Settings], NDArray[np.float64]]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "temperature": _temperature,
}
