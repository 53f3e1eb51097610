"""``--plan`` as text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from kvphase.report.ladder import rung_name
from kvphase.report.lines import clean, left, right, show
from kvphase.report.progress import span
from kvphase.report.terminal import ENGLISH

if TYPE_CHECKING:
    from rich.console import Console

    from kvphase.catalogue import Catalogue
    from kvphase.runs.budget import Budget
    from kvphase.runs.plan import Plan, RungPlan

_RUNG, _PREFILLS, _QUESTIONS, _TOKENS, _TIME, _MONEY = 14, 10, 11, 13, 9, 9
LINEAR_UP_TO = 8192
"""Tokens up to which a prefill is taken to cost the same for each token as the one timed."""


def show_plan(plan: Plan, out: Console, say: Catalogue = ENGLISH) -> None:
    """One line a rung: prefills, questions, tokens, time and money; then the whole."""
    about = plan.about
    name = clean(about.model or about.target)
    show(out, f"{name}   {say('terminal.demo')}" if about.toy else name, "bold")
    show(out, say("plan.timed", prefill=plan.rate.prefill, ask=plan.rate.ask))
    if not plan.rate.reuse:
        show(out, say("plan.no-reuse"), "bold yellow")
    out.print()
    heads = _HEADS if plan.budget.prices else _HEADS[:-1]
    out.print(Text(_row([say(f"plan.{name}") for name in heads]), "dim"), soft_wrap=True)
    for rung in plan.rungs:
        out.print(Text(_line(rung, plan.budget, say)), soft_wrap=True)
        if rung.skipped is not None:
            why = say.of(rung.skipped)
            show(out, f"  {left('', _RUNG)}" + say("plan.skipped", why=why), "dim", hang=" " * 16)
    total = _cells(say("plan.total"), plan.total.seconds, plan, say)
    out.print(Text(_row(total), "bold"), soft_wrap=True)
    out.print()
    show(out, say("plan.at-most"))
    if any((rung.tokens or 0) > LINEAR_UP_TO for rung in plan.rungs):
        show(out, say("plan.linear"))
    show(out, say("plan.budget", budget=_spoken(plan.budget, say)))


_HEADS = ("rung", "prefills", "questions", "tokens", "time", "money")


def _row(cells: list[str]) -> str:
    name, *numbers = cells
    widths = (_PREFILLS, _QUESTIONS, _TOKENS, _TIME, _MONEY)
    shown = [right(cell, width) for cell, width in zip(numbers, widths, strict=False)]
    return f"  {left(name, _RUNG)}{''.join(shown)}".rstrip()


def _line(rung: RungPlan, budget: Budget, say: Catalogue) -> str:
    cost = rung.cost
    kind, _, tokens = rung.name.partition("-")
    name = rung_name(f"needle-{tokens}" if tokens else rung.name, say)
    if kind == "confirm":
        name = say("plan.confirm")
    cells = [
        name,
        f"{cost.prefills:,}",
        f"{cost.questions:,}",
        f"{cost.tokens:,}",
        say.of(span(cost.seconds)),
        _money(cost.dollars(budget)),
    ]
    return _row(cells) + (f" {say('plan.only-if')}" if rung.only_if else "")


def _cells(name: str, seconds: float, plan: Plan, say: Catalogue) -> list[str]:
    total = plan.total
    return [
        name,
        f"{total.prefills:,}",
        f"{total.questions:,}",
        f"{total.tokens:,}",
        say.of(span(seconds)),
        _money(total.dollars(plan.budget)),
    ]


def _money(dollars: float | None) -> str:
    return "" if dollars is None else f"${dollars:.2f}"


def _spoken(budget: Budget, say: Catalogue) -> str:
    """The bounds, in words."""
    parts = []
    if budget.seconds is not None:
        parts.append(say.of(span(budget.seconds)))
    if budget.questions is not None:
        parts.append(say("plan.of-questions", n=budget.questions))
    if budget.tokens is not None:
        parts.append(say("plan.of-tokens", n=budget.tokens))
    if budget.dollars is not None:
        parts.append(f"${budget.dollars:g}")
    return ", ".join(parts) or say("plan.none")


def plan_json(plan: Plan) -> str:
    """The plan as JSON."""
    rungs: list[dict[str, Any]] = []
    for rung in plan.rungs:
        cost = asdict(rung.cost)
        money = rung.cost.dollars(plan.budget)
        rungs.append(
            {
                "rung": rung.name,
                "context_tokens": rung.tokens,
                "contexts": rung.contexts,
                **cost,
                "tokens": rung.cost.tokens,
                "dollars": money,
                "skipped": rung.skipped,
                "only_if_found": rung.only_if,
            }
        )
    return json.dumps(
        {
            "schema": "kvphase/plan@1",
            "target": plan.about.target,
            "model": plan.about.model,
            "prefill_tokens_per_second": round(plan.rate.prefill, 2),
            "seconds_per_question": round(plan.rate.ask, 5),
            "prefix_reused": plan.rate.reuse,
            "rungs": rungs,
            "total": {**asdict(plan.total), "tokens": plan.total.tokens},
        },
        indent=2,
    )
