"""What ``kvphase lab claims`` does: train or load the family, ask it, judge, print and compare."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import torch

from kvphase.errors import UsageError
from kvphase.lab.claims import judge
from kvphase.lab.family import MEMBERS, experiment, load_member, shipped, train_member
from kvphase.lab.figures import NAMES, SEED, measured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kvphase.lab.figures import Measured

__all__ = ["Options", "claims", "lines"]

RESULTS = "results.json"
SCHEMA = "kvphase/claims@1"


@dataclass(frozen=True, slots=True)
class Options:
    """Which models, and whether to train them first."""

    models: Path | None = None
    """Folder of the weights; without it those that ship with the package."""
    retrain: bool = False
    """Train into ``models`` first, going on where a training was."""
    only: tuple[str, ...] = ()
    """Members to look at; empty for all."""
    jobs: int = 0
    """Processes; 0 for one a core."""


def claims(options: Options) -> dict[str, Any]:
    """Return the figures of every member and the claims that can be judged by them.

    Raises:
        UsageError: A member is unknown, or its weights are missing or damaged.
    """
    names = options.only or tuple(MEMBERS)
    for name in names:
        experiment(name)  # refuses names that are none
    folder = options.models or shipped()
    jobs = options.jobs or os.cpu_count() or 1
    if options.retrain:
        _each(_train, [(name, folder) for name in names], jobs)
    found = dict(zip(names, _each(_ask, [(name, folder) for name in names], jobs), strict=True))
    results = _results(found)
    if options.retrain:
        _keep(results, folder / RESULTS)
    return {**results, "recorded": _compared(results, folder / RESULTS)}


def _train(task: tuple[str, Path]) -> None:
    train_member(*task, _tell)


def _ask(task: tuple[str, Path]) -> Measured:
    name, folder = task
    torch.set_num_threads(1)
    model = load_member(name, folder)
    _tell(f"{name}: asking {' and '.join(NAMES.values())}")
    return measured(model)


def _each(work: Callable[[Any], Any], tasks: Sequence[Any], jobs: int) -> list[Any]:
    """Results of ``work`` in the order of ``tasks``; each process computes on one thread."""
    if jobs == 1 or len(tasks) == 1:
        return [work(task) for task in tasks]
    with ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn")) as pool:
        return list(pool.map(work, tasks))


def _results(found: Mapping[str, Measured]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "probes": NAMES,
        "seed": SEED,
        "claims": [claim.as_json() for claim in judge(found)],
        "models": {
            name: {"settings": list(MEMBERS[name]), **model.as_json()}
            for name, model in found.items()
        },
    }


def _keep(results: Mapping[str, Any], path: Path) -> None:
    try:
        path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise UsageError(f"{path} could not be written ({error.strerror})") from error


def _compared(results: Mapping[str, Any], path: Path) -> str:
    """``same``, or which figures differ from those recorded beside the weights."""
    if not path.exists():
        return "none"
    try:
        recorded = json.loads(path.read_text("utf-8"))["models"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a results file of kvphase lab claims") from error
    measured = json.loads(json.dumps(results["models"]))
    differ = [
        line
        for name, figures in measured.items()
        for line in _differences(name, recorded.get(name), figures)
    ]
    return f"differs: {'; '.join(differ)}" if differ else "same"


def _differences(name: str, recorded: Any, measured: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Every figure that is not the one recorded, by its path."""
    if isinstance(recorded, dict) and isinstance(measured, dict):
        return [
            line
            for key, value in measured.items()
            for line in _differences(f"{name}.{key}", recorded.get(key), value)
        ]
    if recorded == measured:
        return []
    return [f"{name}: recorded {_spelled(recorded)}, measured {_spelled(measured)}"]


def lines(found: Mapping[str, Any]) -> str:
    """Return members, then claims, as lines to read."""
    text = [
        f"{'':14}{'prefix padding':53}in-sequence",
        f"{'model':14}{'mean':>5}{'worst':>7}{'best':>6}  {'gap [95% interval]':20}{'period':13}"
        f"{'mean':>5}{'worst':>7}{'best':>6}  period",
    ]
    text += [_line(name, model) for name, model in found["models"].items()]
    for claim in found["claims"]:
        text += ["", f"{claim['id']}. {claim['claim']}: {claim['status'].upper()}"]
        text += [f"   {name}: {_spelled(figure)}" for name, figure in claim["figures"].items()]
    if found["recorded"] != "none":
        text += ["", f"recorded figures: {found['recorded']}"]
    return "\n".join(text)


def _line(name: str, model: Mapping[str, Any]) -> str:
    one, two = model["prefix"], model["insequence"]
    gap = "-"
    if one["gap_pp"] is not None and one["gap_ci95"] is not None:
        low, high = one["gap_ci95"]
        gap = f"{one['gap_pp']:.0f} [{low:.0f}, {high:.0f}]"
    return f"{name:14}{_level(one)}  {gap:20}{_period(one):13}{_level(two)}  {_period(two)}"


def _level(design: Mapping[str, Any]) -> str:
    mean, worst, best = (100 * (design[part] or 0.0) for part in ("mean", "worst", "best"))
    return f"{mean:5.0f}{worst:7.0f}{best:6.0f}"


def _period(design: Mapping[str, Any]) -> str:
    return str(design["period"]) if design["period"] else str(design["verdict"])


def _spelled(figure: Any) -> str:  # noqa: ANN401 - figures are JSON of any shape
    if isinstance(figure, dict):
        return ", ".join(f"{key} {_spelled(value)}" for key, value in figure.items())
    if isinstance(figure, list):
        return "[" + ", ".join(map(_spelled, figure)) + "]"
    return "none" if figure is None else str(figure)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
