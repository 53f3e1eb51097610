"""Answer a whole needle design on a decoder, many prompts at a time.

``kvphase check lab:FOLDER`` asks one question after the other, as it must with a server. A family
of models is asked the very same questions here, but in batches: prefills of one length side by
side, then the first question of each, the second of each, and so on, every one from a fork of its
prefill's cache. The arithmetic is fp64 in both, so the answers are the same.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch

from kvphase.probes.needle import plan_needle
from kvphase.runtimes.toy import CONTEXT_TOKENS, ToyWords
from kvphase.tokens import survey
from kvphase.types import Answers, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from kvphase.lab.transformer import Decoder
    from kvphase.probes.design import NeedleDesign
    from kvphase.probes.needle import NeedlePlan
    from kvphase.types import Ask, Vocab

__all__ = ["answer", "plan"]

PREFILLS = 32
"""Prefills side by side: enough to fill a core, few enough for its cache."""


def plan(design: NeedleDesign, seed: int) -> NeedlePlan:
    """Return the questions of ``design`` in the words of the lookup models, as ``check`` asks them.

    Raises:
        UsageError: The design does not fit, or there are too few words.
    """
    words = ToyWords.load()
    limits = Limits(context_tokens=CONTEXT_TOKENS, local_window=design.window, bos=(words.bos,))
    return plan_needle(_vocabulary(words), limits, design, seed)


def _vocabulary(words: ToyWords) -> Vocab:
    """The one-token words, found as for any other tokenizer."""

    async def tokenize(texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        return [words.encode(text, special=special) for text in texts]

    return asyncio.run(survey(tokenize))


@torch.no_grad()
def answer(model: Decoder, asked: NeedlePlan) -> Answers:
    """Ask every screen question of ``asked``; ``model`` becomes fp64.

    Returns:
        The answers in ask order, as a run file would give them; margins are unknown.
    """
    decoder, words = model.double().eval(), ToyWords.load()
    device = decoder.embedding.weight.device
    asks: list[Ask] = []
    best: list[Tensor] = []
    scores: list[Tensor] = []
    for group in _groups(asked):
        cache = decoder.start(len(group))
        decoder.extend(cache, torch.tensor([batch[0].prefix for batch in group], device=device))
        for questions in zip(*group, strict=True):  # the n-th question of every prefill
            suffixes = torch.tensor([ask.suffix for ask in questions], device=device)
            expected = [words.encode(ask.expected)[0] for ask in questions]
            logprobs = decoder.extend(cache.fork(), suffixes)[:, -1].log_softmax(-1)  # [B, vocab]
            best.append(logprobs.argmax(-1).cpu())
            rows = torch.arange(len(questions))
            scores.append(logprobs.cpu()[rows, torch.tensor(expected)])
            asks.extend(questions)
    texts = np.array([words.decode([token]) for token in torch.cat(best).tolist()], np.str_)
    return _table(asks, texts, torch.cat(scores).numpy())


def _groups(asked: NeedlePlan) -> Iterator[list[list[Ask]]]:
    """The screens of up to `PREFILLS` prefills of one length and one number of questions."""
    batches = ([ask for ask in batch if ask.arm == "screen"] for batch in asked.batches())
    for _, alike in groupby(batches, lambda batch: (len(batch[0].prefix), len(batch))):
        group: list[list[Ask]] = []
        for batch in alike:
            group.append(batch)
            if len(group) == PREFILLS:
                yield group
                group = []
        if group:
            yield group


def _table(asks: Sequence[Ask], texts: np.ndarray, logprobs: np.ndarray) -> Answers:
    """Columns in the order in which one by one would have asked."""
    n = len(asks)
    unknown = np.full(n, np.nan)
    table = Answers(
        position=np.array([ask.target for ask in asks], np.int64),
        correct=np.array(
            [ask.expected == text for ask, text in zip(asks, texts, strict=True)], "i1"
        ),
        logprob=logprobs.astype(np.float64),
        item=np.array([ask.item for ask in asks], np.int64),
        block=np.array([ask.block for ask in asks], np.int64),
        context=np.array([ask.context for ask in asks], np.int64),
        pad=np.array([ask.pad for ask in asks], np.int64),
        arm=np.array([ask.arm.value for ask in asks], np.str_),
        text=texts,
        margin=unknown,
        question=np.array([ask.question for ask in asks], np.int64),
        against=unknown,
    )
    # stable: within a prefill the questions were asked in their order already
    order = np.lexsort((np.arange(n), table.pad, table.context))
    return Answers(*(getattr(table, name)[order] for name in Answers.__dataclass_fields__))
