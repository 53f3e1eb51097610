"""The page of a shift run: as the page of a check, one HTML file that asks nothing of the network.

Prompts' names, answers and notes are data: each is cleaned of control characters and escaped by the
template; in the figure they do not appear at all.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from kvphase.catalogue import Catalogue
from kvphase.report.lines import clean
from kvphase.report.page import Shown, environment, pictured, policy_for
from kvphase.report.shift import notes_by_kind, rows_by_pad, verdict_lines
from kvphase.report.shift_figure import shift_figure
from kvphase.report.tables import Table
from kvphase.report.theme import drawable
from kvphase.report.words import columns, p_text, percent, points, shorten
from kvphase.types import Arm
from kvphase.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvphase.catalogue import Language
    from kvphase.runs.shift import ShiftRun

MOST_TASKS = 200
"""Tasks whose answers are shown; the JSON beside the run file has all."""
_NAME, _ANSWER = 48, 60
_DASH = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class _Words:
    """What the shared macros ask of words."""

    language: Language
    wide: bool

    @staticmethod
    def of(text: str) -> str:
        """Everything given to the template is said already."""
        return text


def shift_page(run: ShiftRun, language: Language) -> str:
    """The whole page as HTML."""
    say = Catalogue(language)
    model = clean(str(run.manifest["model"] or run.manifest["target"]))
    css = resources.files(__package__).joinpath("templates", "page.css").read_text("utf-8")
    shown = _shown(run, language, model)
    tables = _tables(run, say)
    present = {
        "curve": shown is not None,
        "tasks": tables["tasks"] is not None,
        "moves": tables["moves"] is not None,
    }
    names = ("curve", "tasks", "answers", "moves", "control", "how", "means", "notes", "again")
    sections = [
        (name, say(f"shift.page.{name}.heading")) for name in names if present.get(name, True)
    ]
    found = run.found
    return (
        environment()
        .get_template("shift.html.j2")
        .render(
            w=_Words(language, wide=columns(model) > len(model)),
            say=say,
            css=css,
            policy=policy_for(css),
            version=__version__,
            model=model,
            demo=bool(run.manifest["toy"]),
            about=_about(run, say),
            settings=_settings(run, say),
            sections=sections,
            headings=dict(sections),
            shown=shown,
            tables=tables,
            keys=_keys(run, say),
            kind=found.verdict,
            verdict=say(f"verdict.name.{found.verdict}"),
            meaning=say(f"shift.meaning-{found.verdict}"),
            reason=clean(say.of(found.reason)),
            settle=None if found.would_settle is None else clean(say.of(found.would_settle)),
            lines=[clean(say.of(line)) for line in verdict_lines(found, _single(run))],
            control=_control(run, say),
            means=_means(run, say),
            notes=[clean(say.of(note)) for note in (*found.notes, *notes_by_kind(run.plan))],
            partial=run.partial,
            traffic=bool(run.manifest.get("traffic")),
            more=max(0, len(run.plan["tasks"]) - MOST_TASKS),
            commands=_commands(run, say),
        )
    )


def _single(run: ShiftRun) -> bool:
    return len(run.plan["tasks"]) == 1


def _shown(run: ShiftRun, language: Language, model: str) -> Shown | None:
    """The curve over the shifts; None where no shift was answered everywhere."""
    figure = shift_figure(run, model, Catalogue(language))
    if figure is None:
        return None
    here = drawable(language)
    plain = figure if here == language else shift_figure(run, model, Catalogue(here))
    wide = columns(model) > len(model)
    return pictured(
        figure,
        _Words(language, wide=language == "zh" or wide),
        plain or figure,
        _Words(here, wide=here == "zh" or wide),
    )


def _settings(run: ShiftRun, say: Catalogue) -> str:
    """Second line of the page: what was shifted, and how far."""
    plan = run.plan
    return say(
        "shift.page.settings",
        tasks=len(plan["tasks"]),
        shifts=run.found.shifts,
        tokens=max(task["tokens"] for task in plan["tasks"]),
        seed=plan["seed"],
    )


def _keys(run: ShiftRun, say: Catalogue) -> list[tuple[str, str]]:
    """The figures that matter, by their labels."""
    found = run.found
    flips = f"{sum(found.flips)} / {len(found.flips)}"
    worst = _DASH
    if found.worst is not None:
        shift, share = found.worst
        worst = say("shift.page.at-shift", share=percent(share), shift=shift)
    values = {
        "period": _DASH if found.period is None else str(found.period),
        "gap": points(found.gap_pp),
        "p": p_text(found.p_value),
        "mean": _DASH if found.mean is None else percent(found.mean),
        "worst": worst,
        "flips": flips,
        "mde": points(found.mde_pp),
    }
    return [(say(f"shift.page.key.{name}"), value) for name, value in values.items()]


def _about(run: ShiftRun, say: Catalogue) -> list[tuple[str, str]]:
    manifest, totals = run.manifest, run.totals
    families = {name for task in run.plan["tasks"] for name in task["families"]}
    order = [name for name in ("neutral", "equals", "polite", "blank") if name in families]
    tokens = {
        name: say("page.unknown") if totals[name] is None else f"{totals[name]:,}"
        for name in ("prefilled", "cached", "generated")
    }
    values = {
        "page.about.model": manifest["model"],
        "page.about.target": manifest["target"],
        "page.about.quant": manifest["quant"],
        "page.about.runtime": " ".join(filter(None, (manifest["runtime"], manifest["build"]))),
        "shift.page.about.filler": say("shift.comma").join(
            say(f"shift.family-{name}") for name in order
        ),
        "shift.page.about.measure": say(f"shift.page.measure.{run.found.measure}"),
        "page.about.asked": f"{totals['asked']:,}",
        "page.about.tokens": say("page.about.tokens.value", **tokens),
        "page.about.seconds": say(
            "page.about.seconds.value", seconds=f"{float(totals['seconds'] or 0):.1f}"
        ),
        "page.about.seed": str(run.plan["seed"]),
        "shift.page.about.digest": manifest["prompts"],
        "page.about.version": manifest["kvphase"],
    }
    unknown = say("page.unknown")
    return [(say(key), clean(str(value or unknown))) for key, value in values.items()]


def _tables(run: ShiftRun, say: Catalogue) -> dict[str, Any]:
    tasks = run.plan["tasks"]
    shown = range(min(len(tasks), MOST_TASKS))
    moved = [_places(run, item, say) for item in shown if tasks[item]["moved"]]
    return {
        "tasks": None if len(tasks) == 1 else _suite(run, say),
        "answers": [table for item in shown if (table := _answers(run, item, say)) is not None],
        "moves": moved or None,
    }


def _name(run: ShiftRun, item: int) -> str:
    return shorten(clean(str(run.plan["tasks"][item]["name"])), _NAME)


def _suite(run: ShiftRun, say: Catalogue) -> Table:
    """One row a task: its right answers over all shifts and fillers."""
    a, rows = run.answers, []
    for item, task in enumerate(run.plan["tasks"][:MOST_TASKS]):
        mine = (a.item == item) & (a.arm == Arm.SCREEN.value)
        right = _DASH
        if task["expected"] is not None:
            right = f"{int((a.correct[mine] == 1).sum())} / {int(mine.sum())}"
        different = len(np.unique(a.text[mine]))
        flips = say("shift.page.yes" if run.found.flips[item] else "shift.page.no")
        rows.append((_name(run, item), f"{task['target']:,}", right, str(different), flips))
    heads = ("task", "target", "right", "different", "flips")
    return _table(say, "tasks", heads, rows)


def _answers(run: ShiftRun, item: int, say: Catalogue) -> Table | None:
    """Every shift of a task: position, answer, whether it is right, how probable the right one."""
    rows = []
    for arm in (Arm.SHIFT, Arm.SCREEN):
        block = 0 if arm is Arm.SHIFT else None
        for pad, at in rows_by_pad(run, item, arm, block).items():
            label = say("shift.as-is") if arm is Arm.SHIFT else str(pad - run.plan["base"])
            rows.append((label, *_row(run, item, at, say)))
    if not rows:
        return None
    heads = ("shift", "position", "answer", "right", "probability")
    return _table(say, "answers", heads, rows, name=_name(run, item))


def _places(run: ShiftRun, item: int, say: Catalogue) -> Table:
    """The marked text where it was and where it was moved to."""
    rows = []
    for place, arm, block in (
        ("original", Arm.SCREEN, 0),
        ("head", Arm.SHIFT, 1),
        ("tail", Arm.SHIFT, 2),
    ):
        for pad, at in list(rows_by_pad(run, item, arm, block).items())[:4]:
            label = f"{say(f'shift.place-{place}')} {pad - run.plan['base']}"
            rows.append((label, *_row(run, item, at, say)))
    heads = ("place", "position", "answer", "right", "probability")
    return _table(say, "moves", heads, rows, name=_name(run, item))


def _row(run: ShiftRun, item: int, at: list[int], say: Catalogue) -> tuple[str, str, str, str]:
    a, task = run.answers, run.plan["tasks"][item]
    texts = [str(a.text[i]) for i in at]
    common = max(texts, key=texts.count)
    answer = shorten(clean(" ".join(common.split())), _ANSWER) or say("page.wrong.empty")
    if len(set(texts)) > 1:
        answer += f" ({texts.count(common)}/{len(texts)})"
    right = _DASH
    if task["expected"] is not None:
        right = f"{int((a.correct[at] == 1).sum())} / {len(at)}"
    scored = task["scored"] and np.isfinite(a.logprob[at]).all()
    probability = percent(float(np.exp(a.logprob[at]).mean())) if scored else _DASH
    return f"{int(a.position[at[0]]):,}", answer, right, probability


def _table(
    say: Catalogue,
    kind: str,
    heads: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    **values: str,
) -> Table:
    words = tuple(say(f"shift.page.column.{head}") for head in heads)
    return Table(say(f"shift.page.{kind}.table", **values), words, tuple(rows))


def _control(run: ShiftRun, say: Catalogue) -> str:
    """What the control says, or why there is none."""
    tail = run.found.tail
    if tail is not None:
        values = {"largest": tail.largest_pp, "upper": tail.upper_pp, "p": tail.p_value}
        return say(f"shift.tail-{tail.status}", **values)
    if not any(task["tail"] for task in run.plan["tasks"]):
        return say("shift.page.control.no-place")
    return say("shift.page.control.unneeded")


def _means(run: ShiftRun, say: Catalogue) -> list[str]:
    names = ["prompt", "single" if _single(run) else "suite", "period", "quality"]
    if run.manifest["toy"]:
        names.insert(0, "toy")
    return [say("page.means.toy" if n == "toy" else f"shift.page.means.{n}") for n in names]


def _commands(run: ShiftRun, say: Catalogue) -> list[tuple[str, str]]:
    target = shlex.quote(clean(str(run.manifest["target"])))
    file = shlex.quote(clean(run.path.name))
    full = " --full" if run.plan["full"] else ""
    return [
        (
            say("shift.page.again.lead"),
            f"kvphase shift PROMPT {target}{full} --seed {run.plan['seed']}",
        ),
        (say("page.again.page"), f"kvphase report {file} --lang {say.language}"),
    ]


__all__ = ["shift_page"]
