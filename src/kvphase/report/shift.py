"""A shift run as text: answers by shift, the verdict, the control, a suite's tasks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from kvphase.catalogue import Catalogue, Message, message
from kvphase.probes.shift_columns import with_measures
from kvphase.report.lines import Glyphs, clean, left, right, show
from kvphase.report.terminal import ENGLISH, STYLES, show_compression, verdict_name
from kvphase.types import Arm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kvphase.probes.shifted import Found
    from kvphase.runs.budget import Prices
    from kvphase.runs.shift import Estimate, ShiftRun

_BAR = 24
_ANSWER = 20
_MOST_TASKS = 40


def show_shift(run: ShiftRun, out: Console, say: Catalogue = ENGLISH) -> None:
    """Everything a shift run found."""
    manifest, plan = run.manifest, run.plan
    name = clean(manifest["model"] or manifest["target"])
    show(out, f"{name}   {say('terminal.demo')}" if manifest["toy"] else name, "bold")
    show(out, _head(run, say))
    if manifest["toy"]:
        show_compression(name, out, say)
    out.print()
    if len(plan["tasks"]) == 1:
        _show_single(run, out, say)
    else:
        _show_suite(run, out, say)
    _show_moves(run, out, say)
    out.print()
    _show_verdict(run, out, say)
    totals = run.totals
    line = say("terminal.cost.asks", asked=totals["asked"], seconds=float(totals["seconds"] or 0))
    if totals["prefilled"] is not None:
        line += say("terminal.cost.prefilled", n=totals["prefilled"])
    if totals["cached"] is not None:
        line += say("terminal.cost.cached", n=totals["cached"])
    show(out, line + say("terminal.cost.end"), "dim")


def _head(run: ShiftRun, say: Catalogue) -> str:
    plan = run.plan
    families = say("shift.comma").join(
        say(f"shift.family-{name}") for name in plan["tasks"][0]["families"]
    )
    task = plan["tasks"][0]
    key = "head" if len(plan["tasks"]) == 1 else "head-suite"
    return say(
        f"shift.{key}",
        name=clean(task["name"]),
        tasks=len(plan["tasks"]),
        tokens=task["tokens"],
        start=task["start"],
        families=families,
        seed=plan["seed"],
    )


def _show_single(run: ShiftRun, out: Console, say: Catalogue) -> None:
    """One line a shift: answer, whether it is right, probabilities."""
    task, answers = run.plan["tasks"][0], run.answers
    groups = _groups(run, 0)
    show(out, say("shift.table" if task["marked"] else "shift.table-unmarked"))
    scored = with_measures(run.plan["tasks"], answers)[0]["scored"]
    heads = [say(f"shift.column-{name}") for name in ("shift", "target", "answer")]
    line = f"  {right(heads[0], 6)}{right(heads[1], 10)}  {left(heads[2], _ANSWER)}"
    if scored:
        line += f" {left(say('shift.column-right'), _BAR + 8)}"
        line += say("shift.column-wrong") if task["against"] else ""
    out.print(Text(line.rstrip(), style="dim"), soft_wrap=True)
    glyphs = Glyphs.of(out.encoding)
    for arm, block in ((Arm.SHIFT, 0), (Arm.SCREEN, None)):
        for pad, rows in rows_by_pad(run, 0, arm, block).items():
            label = say("shift.as-is") if arm is Arm.SHIFT else str(pad - run.plan["base"])
            i = rows[0]
            line = f"  {right(label, 6)}{answers.position[i]:>10}  "
            line += left(_answer(run, rows, groups), _ANSWER)
            text = Text(line, style="" if _right(run, rows) else "red")
            if scored:
                p = float(np.mean(np.exp(answers.logprob[rows])))
                bar = "" if np.isnan(p) else glyphs.full * round(_BAR * p)
                text.append(f" {_percent(p)} {left(bar, _BAR)}")
                if task["against"]:
                    q = float(np.mean(np.exp(answers.against[rows])))
                    text.append(f" {_percent(q)}")
            text.rstrip()
            out.print(text, soft_wrap=True)
    if task["expected"] is None:
        _show_groups(groups, out, say)


def _percent(share: float) -> str:
    """A probability in a column; a dash where an answer came without it."""
    return right("-", 6) if np.isnan(share) else f"{100 * share:5.1f}%"


def rows_by_pad(run: ShiftRun, item: int, arm: Arm, block: int | None) -> dict[int, list[int]]:
    """Rows of each pad in order; of all fillers where ``block`` is None."""
    a = run.answers
    mask = (a.item == item) & (a.arm == arm.value)
    if block is not None:
        mask &= a.block == block
    found: dict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero(mask)[np.argsort(a.pad[mask], kind="stable")]:
        found[int(a.pad[i])].append(int(i))
    return dict(found)


def _right(run: ShiftRun, rows: Sequence[int]) -> bool:
    task = run.plan["tasks"][int(run.answers.item[rows[0]])]
    graded = task["expected"] is not None
    return not graded or bool((run.answers.correct[list(rows)] == 1).all())


def _answer(run: ShiftRun, rows: Sequence[int], groups: dict[str, str]) -> str:
    """The answer on one line, with a letter where groups are compared; the commonest of several."""
    texts = [str(run.answers.text[i]) for i in rows]
    common = max(texts, key=texts.count)
    letter = f"{groups[common]} " if groups else ""
    more = f" ({texts.count(common)}/{len(texts)})" if len(set(texts)) > 1 else ""
    shown = clean(" ".join(common.split()))
    room = _ANSWER - len(letter) - len(more)
    return letter + (shown if len(shown) <= room else shown[: room - 1] + "…") + more


def _groups(run: ShiftRun, item: int) -> dict[str, str]:
    """A letter for each distinct answer, the commonest first; empty with an expected answer."""
    if run.plan["tasks"][item]["expected"] is not None:
        return {}
    mine = [str(t) for t in run.answers.text[run.answers.item == item]]
    names = sorted(set(mine), key=lambda text: (-mine.count(text), mine.index(text)))
    return {text: _letter(i) for i, text in enumerate(names)}


def _letter(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"Z{i - 25}"


def _show_groups(groups: dict[str, str], out: Console, say: Catalogue) -> None:
    show(out, say("shift.groups", n=len(groups)))
    for text, letter in groups.items():
        show(out, f"  {letter}  {clean(' '.join(text.split()))[:200]}", hang="     ")


def _show_suite(run: ShiftRun, out: Console, say: Catalogue) -> None:
    """One line a task, then the share of right answers by shift."""
    found, tasks = run.found, run.plan["tasks"]
    show(out, say("shift.flips", flips=sum(found.flips), tasks=len(tasks)), "bold")
    if found.mean is not None and found.worst is not None:
        shift, share = found.worst
        values = {"mean": 100 * found.mean, "worst": 100 * share, "shift": shift}
        show(out, say("shift.levels", **values))
    for item, task in enumerate(tasks[:_MOST_TASKS]):
        out.print(Text(_task_line(run, item, task, say)), soft_wrap=True)
    if len(tasks) > _MOST_TASKS:
        show(out, say("shift.more-tasks", n=len(tasks) - _MOST_TASKS), "dim")


def _task_line(run: ShiftRun, item: int, task: dict[str, Any], say: Catalogue) -> str:
    """A task's right (``+``) and wrong (``-``) answers, or its groups, shift by shift."""
    groups = _groups(run, item)
    marks = ""
    for rows in rows_by_pad(run, item, Arm.SCREEN, None).values():
        marks += groups[str(run.answers.text[rows[0]])][:1] if groups else _mark(run, rows)
    flips = say("shift.flips-here") if run.found.flips[item] else ""
    return f"  {left(clean(task['name'])[:28], 28)} {marks}  {flips}".rstrip()


def _mark(run: ShiftRun, rows: Sequence[int]) -> str:
    right_ones = (run.answers.correct[list(rows)] == 1).mean()
    return "+" if right_ones == 1 else "-" if right_ones == 0 else "~"


def _show_moves(run: ShiftRun, out: Console, say: Catalogue) -> None:
    """The marked span where it was, and where it was moved to, at four phases each."""
    for item, task in enumerate(run.plan["tasks"]):
        if not task["moved"]:
            continue
        out.print()
        show(out, say("shift.moves", name=clean(task["name"])))
        places = [("original", Arm.SCREEN, 0)]
        places += [(p, Arm.SHIFT, n) for n, p in enumerate(("head", "tail"), 1)]
        groups = _groups(run, item)
        for place, arm, block in places:
            for pad, rows in list(rows_by_pad(run, item, arm, block).items())[:4]:
                label = left(say(f"shift.place-{place}"), 12)
                line = f"  {label}{right(str(pad - run.plan['base']), 4)}"
                line += f"{run.answers.position[rows[0]]:>8}  "
                line += left(_answer(run, rows, groups), _ANSWER)
                if task["scored"]:
                    line += f" {_percent(float(np.exp(run.answers.logprob[rows[0]])))}"
                text = Text(line.rstrip(), style="" if _right(run, rows) else "red")
                out.print(text, soft_wrap=True)


def _show_verdict(run: ShiftRun, out: Console, say: Catalogue) -> None:
    found = run.found
    name = verdict_name(found.verdict, say)
    if run.partial:
        name = say("terminal.partial", name=name)
    line = say("terminal.verdict", name=name, meaning=say(f"shift.meaning-{found.verdict}"))
    show(out, line, STYLES[found.verdict], lead=len(name))
    show(out, say.of(found.reason))
    if found.would_settle:
        show(out, say("terminal.settle", what=found.would_settle))
    for one in verdict_lines(found, len(run.plan["tasks"]) == 1):
        show(out, say.of(one))
    for note in [*found.notes, *notes_by_kind(run.plan)]:
        show(out, say("terminal.note", note=note), "dim")


def verdict_lines(found: Found, one: bool) -> list[str]:
    """What stands below the verdict: strong and weak shifts, the fillers, the control."""
    lines: list[str] = []
    if found.slots and found.period and one:
        weak = min(found.slots, key=lambda slot: slot.level)
        strong = max(found.slots, key=lambda slot: slot.level)
        lines.append(
            message(
                "shift.slots",
                period=found.period,
                strong=_listed(strong.shifts),
                high=100 * strong.level,
                weak=_listed(weak.shifts),
                low=100 * weak.level,
                residue=weak.residue,
            )
        )
        changes = "shift.changes" if any(found.flips) else "shift.keeps"
        lines.append(message(changes))
    if found.agree_p is not None:
        lines.append(message("shift.agree", p=found.agree_p))
    if found.tail is not None:
        tail = found.tail
        lines.append(
            message(
                f"shift.tail-{tail.status}",
                largest=tail.largest_pp,
                upper=tail.upper_pp,
                p=tail.p_value,
            )
        )
    return lines


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def notes_of(plan: dict[str, Any]) -> list[str]:
    """Notes of the tasks, each once, told with their task's name where there are several."""
    notes: dict[str, str] = {}
    for task in plan["tasks"]:
        for kept in task["notes"]:
            text = _note(kept)
            if len(plan["tasks"]) > 1 and kept.get("key") != "shift.note-unmarked":
                text = message("shift.note-of", name=clean(task["name"]), note=text)
            notes.setdefault(str(text), text)
    return list(notes.values())


def notes_by_kind(plan: dict[str, Any]) -> list[str]:
    """As `notes_of`, but one line for notes of a kind that several tasks have."""
    tasks = plan["tasks"]
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for task in tasks:
        for kept in task["notes"]:
            kind = (kept.get("key") or str(kept["text"]), _family(kept))
            kinds[kind].append(kept)
    if len(tasks) == 1 or all(len(same) == 1 for same in kinds.values()):
        return notes_of(plan)
    return [
        message("shift.note-tasks", note=_common(same), count=len(same), tasks=len(tasks))
        for same in kinds.values()
    ]


def _family(kept: dict[str, Any]) -> str:
    """The filler that a note is about, if it is about one."""
    return str(kept.get("values", {}).get("family", ""))


_OF_SOME = {
    "shift.note-twice": "shift.note-twice-some",
    "shift.note-elsewhere": "shift.note-elsewhere-some",
}
"""Notes that quote one task's answer, and what says the same of several tasks."""


def _common(same: Sequence[dict[str, Any]]) -> str:
    """What notes of a kind have in common."""
    key = _OF_SOME.get(same[0].get("key", "")) if len(same) > 1 else None
    return _note(same[0]) if key is None else message(key)


def _note(kept: dict[str, Any]) -> str:
    """A note as the manifest holds it."""
    values = {n: _message(v) for n, v in kept.get("values", {}).items()}
    return message(kept["key"], **values) if "key" in kept else str(kept["text"])


def _message(value: Any) -> Any:  # noqa: ANN401 - a note's value as the manifest holds it
    """A message inside a message, which JSON keeps as its English text only."""
    families = ("neutral", "equals", "polite", "blank")
    known: dict[str, Message] = {
        str(m): m for m in (message(f"shift.family-{n}") for n in families)
    }
    return known.get(value, value) if isinstance(value, str) else value


def show_estimate(
    estimate: Estimate, out: Console, say: Catalogue, prices: Prices | None = None
) -> None:
    """``--plan``: what each part takes, and whether the budget holds what is asked in any case."""
    show(out, say("shift.plan", rate=estimate.speed.rate))
    dollars = 0.0
    for name, price in estimate.parts:
        line = say(
            f"shift.plan-{name}",
            requests=price.requests,
            evaluated=price.evaluated,
            cached=price.cached,
            generated=price.generated,
            seconds=price.seconds(estimate.speed),
        )
        show(out, f"  {line}", hang="    ")
        if prices is not None:
            dollars += prices.of(price.evaluated, price.cached, price.generated)
    if prices is not None:
        show(out, say("shift.plan-price", dollars=f"{dollars:.4f}"))
    if estimate.lacking is not None:
        show(out, clean(say.of(estimate.lacking)), "yellow")
