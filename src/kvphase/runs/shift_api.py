"""``kvphase.shift``: a shift run from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvphase.runs.check import DEFAULT_TARGET
from kvphase.runs.shift import ShiftRun, run_shift
from kvphase.runs.shift_plan import Options
from kvphase.runs.shift_source import Wanted, plain_source, read_sources, sources_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.probes.shift import Place
    from kvphase.runs.budget import Budget


def shift(
    prompt: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    target: str | None = None,
    *,
    answer: str | None = None,
    against: str | None = None,
    match: str = "exact",
    tokens: int | None = None,
    chat: bool = False,
    full: bool = False,
    move: Sequence[Place] = (),
    seed: int = 0,
    out: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
) -> ShiftRun:
    """Ask a prompt at several shifts: same content, other positions.

    Synchronous; works inside a running event loop too. What the options mean is what those of
    ``kvphase shift`` mean.

    Args:
        prompt: The text itself, with ``{{mark}}...{{/mark}}`` around what the answer rests on; a
            `Path` to a file that ``kvphase shift`` takes; a request with ``messages``, or a list
            of messages or of a suite's tasks.
        target: A URL or ``toy:NAME``; ``toy:w8s4`` if not given.
        answer: What is right; without it answers are grouped.
        against: The tempting wrong answer.
        match: The rule by which an answer is right.
        tokens: Length of an answer; as fits ``match`` if not given.
        chat: A text is asked inside the server's chat template.
        full: Sixteen shifts of four fillers; always the control.
        move: Places to which the marked text is moved besides: ``head``, ``tail``.
        seed: Decides the filler's words.
        out: The run file; a new one under ``kvphase-runs`` if not given.
        resume: Go on with ``out``.
        budget: Bounds for this sitting; a quarter of an hour if not given.

    Returns:
        The run; ``run.found.verdict`` is what was found.

    Raises:
        UsageError: bad input, or a budget that does not hold the first shifts.
        RuntimeFault: the model cannot be reached or is unusable. Whatever was answered before is
            in the run file.
    """
    wanted = Wanted(answer=answer, against=against, match=match, tokens=tokens, chat=chat)
    if isinstance(prompt, Path):
        sources = read_sources(str(prompt), wanted)
    elif isinstance(prompt, str):
        sources = [plain_source(prompt, "prompt", wanted)]
    else:
        whole = dict(prompt) if isinstance(prompt, Mapping) else [dict(one) for one in prompt]
        sources = sources_of(whole, "prompt", Path(), wanted)
    return run_shift(
        sources,
        DEFAULT_TARGET if target is None else target,
        Options(seed=seed, full=full, move=tuple(move)),
        out=out,
        resume=resume,
        budget=budget,
    )
