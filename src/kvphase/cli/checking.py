"""What ``kvphase check`` does with its options: plan or measure, show, and keep what there is."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kvphase.catalogue import Catalogue, message
from kvphase.errors import KvphaseError, UsageError
from kvphase.report.document import as_json, run_document
from kvphase.report.ladder import messages_of, show_confirmation, show_rungs
from kvphase.report.lines import console, show
from kvphase.report.plan import plan_json, show_plan
from kvphase.report.progress import Progress
from kvphase.report.terminal import show_run, show_traffic
from kvphase.runs import check as runs
from kvphase.runs.check import minutes_of
from kvphase.runs.settings import FLIP, PROBES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.runs.budget import Budget
    from kvphase.runs.settings import Settings
    from kvphase.runtimes.adapters import Choice

LONGEST_LABEL = 100


def target_or_default(target: str | None) -> str:
    """The target, or the toy that depends on phase."""
    return runs.DEFAULT_TARGET if target is None else target


def labels_of(texts: Sequence[str]) -> dict[str, str]:
    """Labels from ``NAME=VALUE``.

    Raises:
        UsageError: a text is not that.
    """
    labels: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.strip() or len(text) > LONGEST_LABEL or not text.isprintable():
            raise UsageError(message("run.bad-label", text=text[:LONGEST_LABEL]))
        labels[name.strip()] = value.strip()
    return labels


def frozen(
    like: Path | None, probe: str | None
) -> tuple[tuple[dict[str, Any], ...], int | None, bool]:
    """Designs, seed and early looks of another run or of a named probe; nothing without either.

    Raises:
        UsageError: both were given, the probe has no such name, or the run holds no needles.
        StoreError: the run file cannot be read.
    """
    if like is not None and probe is not None:
        raise UsageError(message("run.like-and-probe"))
    if probe is not None:
        if probe not in PROBES:
            raise UsageError(message("run.bad-probe", name=probe, known=", ".join(PROBES)))
        return PROBES[probe], 0, False
    if like is None:
        return (), None, True
    run = runs.load(like)
    designs = tuple(
        r.stage.design if r.stage.kind == "needle" else {"kind": FLIP}
        for r in run.results
        if r.stage.kind in ("needle", FLIP)
    )
    if not designs:
        raise UsageError(message("run.like-nothing", name=like.name))
    return designs, int(run.manifest["seed"]), bool(run.manifest["settings"]["early"])


def only_frozen(given: dict[str, object]) -> None:
    """Refuse options that say otherwise than a design that was taken over as it is.

    Raises:
        UsageError: naming the first of them.
    """
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise UsageError(message("run.like-option", option=name))


def planned(
    target: str, settings: Settings, budget: Budget | None, choice: Choice, *, json: bool
) -> None:
    """``--plan``: what each rung would take."""
    from kvphase.runs.plan import plan_run

    if not target.startswith("toy:"):
        show(console(sys.stderr), Catalogue.on(sys.stderr)("progress.times"), "dim")
    plan = runs.run_sync(plan_run(target, settings, budget, choice=choice))
    if json:
        typer.echo(plan_json(plan))
    else:
        out = console(sys.stdout)
        show_plan(plan, out, Catalogue.on(sys.stdout))


def measured(
    target: str | None,
    settings: Settings,
    budget: Budget | None,
    labels: dict[str, str],
    choice: Choice,
    *,
    out: Path | None,
    resume: bool,
    json: bool,
) -> None:
    """Measure, with progress on stderr, and show the result or what there is of it."""
    opened: list[Path] = []
    say = Catalogue.on(sys.stderr)
    try:
        with Progress(console(sys.stderr), opened.append, say) as watcher:
            run = runs.check(
                target,
                settings,
                out=out,
                resume=resume,
                budget=budget,
                watcher=watcher,
                labels=labels,
                choice=choice,
            )
    except (KeyboardInterrupt, KvphaseError) as stop:
        _show_partial(opened, json=json)
        if isinstance(stop, KvphaseError):
            raise
        sys.stderr.write(f"kvphase: {say('run.interrupted')}\n")
        raise typer.Exit(130) from None
    show_result(run, json=json)
    if run.manifest.get("stopped") and run.partial:
        sys.stderr.write(f"kvphase: {run.manifest['stopped']}\n")
        _how_to_go_on(run, " --budget 15m")
    _more(run, say)


def show_result(run: runs.Run, *, json: bool) -> None:
    """The result on stdout and as a file beside the run file."""
    document = run_document(run)
    text = as_json(document)
    beside = run.path.with_name(run.path.name.removesuffix(".kvphase") + ".verdict.json")
    fresh = beside.with_name(f".{beside.name}.new")
    try:
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(beside)
    except OSError as error:
        sys.stderr.write(f"kvphase: {beside.name} cannot be written: {error.strerror}\n")
    if json:
        typer.echo(text)
        return
    out = console(sys.stdout)
    say = Catalogue.on(sys.stdout)
    show_run(run, out, say)
    found = run.confirmation
    if found is not None and found.confirmation is not None:
        out.print()
        show_confirmation(found.confirmation, out, say)
    show_traffic(document.traffic, out, say)
    if len(document.per_length) > 1 or document.skipped:
        out.print()
        show_rungs(document, out, say, messages_of(run))
    out.print()
    out.print(say("terminal.file.run", path=run.path), soft_wrap=True)
    out.print(say("terminal.file.verdict", path=beside), soft_wrap=True)
    show(out, say("terminal.file.page", path=shlex.quote(str(run.path))))
    if run.manifest["target"].startswith("toy:") and not run.partial:
        show(out, say("terminal.next"))
        _name_servers(say)


def _name_servers(say: Catalogue) -> None:
    """After a toy: what listens on this machine that could be measured instead."""
    from kvphase.runtimes.nearby import nearby

    found = runs.run_sync(nearby())
    if found:
        sys.stderr.write(say("run.nearby", servers=", ".join(found)) + "\n")


def _more(run: runs.Run, say: Catalogue) -> None:
    """Where rungs were left out for want of budget, how to climb them."""
    needs = [minutes_of(one.why) for one in run.skipped]
    if not run.partial and any(needs):
        most = max(need for need in needs if need)
        sys.stderr.write(
            say(
                "run.more",
                target=_target(run),
                minutes=math.ceil(2.5 * most),
                out=shlex.quote(str(run.path)),
            )
            + "\n"
        )


def _target(run: runs.Run) -> str:
    """The target as it can be given again, and what was said of it; hosts are not recorded."""
    target = str(run.manifest["target"])
    known = target.startswith("toy:") or "127.0.0.1" in target or "localhost" in target
    chosen = [
        f" --{name} {shlex.quote(value)}"
        for name, value in run.manifest.get("choice", {}).items()
        if value
    ]
    return "".join([target if known else "TARGET", *chosen])


def _show_partial(opened: list[Path], *, json: bool) -> None:
    """What an interrupted or failed run has measured so far, and how to go on."""
    if not opened:
        return
    try:
        run = runs.load(opened[0])
    except KvphaseError:
        return  # stopped before the first answer
    show_result(run, json=json)
    _how_to_go_on(run)


def _how_to_go_on(run: runs.Run, budget: str = "") -> None:
    say = Catalogue.on(sys.stderr)
    out, target = shlex.quote(str(run.path)), _target(run)
    sys.stderr.write(say("run.go-on", target=target, budget=budget, out=out) + "\n")
