"""Runs a bundle's failing pair again elsewhere, and says whether it is the same there."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvphase.catalogue import Catalogue, message
from kvphase.errors import UsageError
from kvphase.report.bundle import read_bundle
from kvphase.report.lines import clean, show
from kvphase.report.terminal import ENGLISH
from kvphase.runs.check import run_sync
from kvphase.runs.execute import complete
from kvphase.runtimes.detect import open_runtime
from kvphase.tokens import survey
from kvphase.types import Arm, Ask

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from kvphase.causes.minimal import How, Pair, Step
    from kvphase.report.bundle import Bundle
    from kvphase.runtimes.adapters import Choice
    from kvphase.types import About, Runtime

SCHEMA = "kvphase/replay@1"
_ARMS: dict[How, Arm] = {
    "cold": Arm.COLD,
    "cached": Arm.SCREEN,
    "grown": Arm.SPLIT,
    "given": Arm.DECODE,
    "beside": Arm.TOGETHER,
    "sampled": Arm.SAMPLED,
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """A pair's answers there and here."""

    bundle: Bundle
    pair: Pair
    about: About
    answers: tuple[str, str]
    """Here, in the order of the pair's steps."""

    @property
    def same(self) -> bool:
        """Whether both answers are those of the bundle."""
        return all(a == s.answer for a, s in zip(self.answers, self.pair.steps, strict=True))

    @property
    def differ(self) -> bool:
        """Whether the two answers differ here too."""
        return self.answers[0] != self.answers[1]


def replay(path: Path, target: str, choice: Choice | None = None) -> Replayed:
    """Ask both requests of a bundle's pair on another target.

    Raises:
        UsageError: no bundle, a bundle without a pair, another tokenizer, or a target that cannot
            be asked in the bundle's way. RuntimeFault: the target cannot be reached.
    """
    bundle = read_bundle(path)
    if bundle.pair is None:
        raise UsageError(message("bundle.nothing", name=path.name))
    return run_sync(_replayed(bundle, bundle.pair, target, choice))


async def _replayed(bundle: Bundle, pair: Pair, target: str, choice: Choice | None) -> Replayed:
    async with open_runtime(target, choice=choice) as runtime:
        vocab = await survey(runtime.tokenize)
        if vocab.digest != bundle.facts["tokenizer"]:
            raise UsageError(message("bundle.other-tokenizer"))
        first, second = [await _asked(runtime, step) for step in pair.steps]
        return Replayed(bundle, pair, runtime.about, (first, second))


async def _asked(runtime: Runtime, step: Step) -> str:
    """One step's answer here."""
    arm = _ARMS[step.how]
    special = arm in (Arm.SPLIT, Arm.DECODE, Arm.TOGETHER, Arm.SAMPLED)
    if special and arm not in runtime.limits.controls:
        raise UsageError(message("bundle.cannot", how=step.how))
    if len(step.prompt) + step.tokens > runtime.limits.context_tokens:
        raise UsageError(message("bundle.too-long", tokens=len(step.prompt)))
    name = f"{step.how}|{step.tokens}|{','.join(map(str, step.prompt))}"
    ask = Ask(
        id=hashlib.blake2b(name.encode(), digest_size=10).hexdigest(),
        prefix=step.prompt[: step.prefix],
        suffix=step.prompt[step.prefix :],
        target=step.cut - 1,
        expected=step.expected,
        candidates=(step.expected,),
        arm=arm,
        item=0,
        block=0,
        context=0,
        pad=0,
        generate=step.tokens,
    )
    return (await complete(ask, runtime)).text


def show_replay(found: Replayed, out: Console, say: Catalogue = ENGLISH) -> None:
    """Both answers, there and here, and what that comes to."""
    there, here = found.bundle.facts, found.about
    show(out, say("bundle.replay.models", there=_named(there), here=_named(vars_of(here))))
    for step, answer in zip(found.pair.steps, found.answers, strict=True):
        show(
            out,
            say(
                "bundle.replay.step",
                how=step.how,
                tokens=len(step.prompt),
                there=clean(repr(step.answer)),
                here=clean(repr(answer)),
                right=clean(repr(step.expected)),
            ),
        )
    show(out, say(f"bundle.replay.{outcome(found)}"), "bold")


def outcome(found: Replayed) -> str:
    """``same``, ``differs``, or ``gone``."""
    if found.same:
        return "same"
    return "differs" if found.differ else "gone"


def vars_of(about: About) -> dict[str, Any]:
    """What of an endpoint's own account is shown."""
    return {"model": about.model, "runtime": about.runtime, "build": about.build}


def _named(facts: dict[str, Any]) -> str:
    parts = (facts.get(name) for name in ("model", "runtime", "build"))
    return clean(", ".join(str(part) for part in parts if part))


def replay_json(found: Replayed) -> str:
    """``kvphase/replay@1``."""
    steps = [
        {
            "how": step.how,
            "tokens": len(step.prompt),
            "expected": step.expected,
            "answer_there": step.answer,
            "answer_here": answer,
        }
        for step, answer in zip(found.pair.steps, found.answers, strict=True)
    ]
    values = {
        "schema": SCHEMA,
        "cause": found.pair.cause,
        "there": {name: found.bundle.facts.get(name) for name in ("model", "runtime", "build")},
        "here": vars_of(found.about),
        "steps": steps,
        "same": found.same,
        "differ": found.differ,
        "outcome": outcome(found),
    }
    return json.dumps(values, indent=2)


__all__ = ["Replayed", "replay", "replay_json", "show_replay"]
