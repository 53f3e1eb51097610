"""Whole climbs on the toys: what is asked, what is frozen, what is left out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import kvphase
from kvphase.errors import UsageError
from kvphase.report.document import as_json, run_document
from kvphase.runs.budget import Budget, Prices
from kvphase.runs.check import run_sync
from kvphase.runs.plan import plan_run
from kvphase.runs.settings import PROBES, Settings
from kvphase.runs.store import Store
from kvphase.schema import VerdictFile
from kvphase.serve import Faults, serving

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.runs.check import Run

SMALL = Settings(questions=192, cold=8, confirm="always", seed=5)


def rows(path: Path) -> list[tuple[object, ...]]:
    with Store.read(path) as store:
        return store._rows(
            "SELECT stage, asks.id, text, correct FROM asks JOIN answers"
            " ON ask_id = asks.id ORDER BY asks.ordinal"
        )


def stages(run: Run) -> list[str]:
    return [result.stage.name for result in run.results]


def test_flip_needles_and_confirmation_each_with_what_it_found(tmp_path: Path) -> None:
    run = kvphase.check("toy:full", SMALL, out=tmp_path / "a.kvphase")
    assert stages(run) == ["flip", "needle-405", "confirm-405"]
    flip, needles, confirmation = run.results
    assert flip.verdict is not None
    assert flip.verdict.n == 64
    assert needles.verdict is not None
    assert needles.verdict.n == 192
    assert run.rung.stage.name == "needle-405"
    assert confirmation.confirmation is not None
    assert confirmation.confirmation.tail is not None
    assert not run.partial
    document = run_document(run)
    assert [one.rung for one in document.per_length] == ["flip", "needle-405"]
    assert document.confirm is not None
    assert document.digest is not None
    assert VerdictFile.model_validate_json(as_json(document)) == document


@pytest.mark.parametrize("first", [80, 150, 330])
def test_a_climb_cut_anywhere_ends_like_an_undisturbed_one(tmp_path: Path, first: int) -> None:
    whole = kvphase.check("toy:full", SMALL, out=tmp_path / "whole.kvphase")
    path = tmp_path / "cut.kvphase"
    cut = kvphase.check("toy:full", SMALL, out=path, budget=Budget(questions=first))
    assert cut.partial
    assert len(rows(path)) <= first
    end = kvphase.check("toy:full", None, out=path, resume=True)
    assert rows(path) == rows(tmp_path / "whole.kvphase")
    assert run_document(end).digest == run_document(whole).digest
    assert end.verdict == whole.verdict


def test_a_budget_that_holds_the_flip_alone_gives_the_flip(tmp_path: Path) -> None:
    settings = Settings(seed=5)
    run = kvphase.check(
        "toy:full", settings, out=tmp_path / "a.kvphase", budget=Budget(questions=80)
    )
    assert stages(run) == ["flip"]
    assert run.rung.stage.name == "flip"
    assert [one.rung for one in run.skipped] == ["needle-405"]
    assert "more than the budget has left" in run.skipped[0].why
    # Another sitting with more to spend goes on where this one stopped.
    more = kvphase.check("toy:full", None, out=run.path, resume=True, budget=Budget(questions=2000))
    assert stages(more)[:2] == ["flip", "needle-405"]
    assert more.skipped == ()


@pytest.mark.parametrize(
    ("budget", "prices", "unit"),
    [
        ("1q", None, r"about [\d,]+ questions,.* --budget (\d+q)$"),
        ("1.5ktok", None, r"about [\d,]+ tokens,.* --budget (\d+ktok)$"),
        ("$0.012", Prices(1.0, 1.0), r"about \$[\d.]+,.* --budget '(\$[\d.]+)'$"),
    ],
)
def test_a_budget_too_small_names_its_unit_and_one_that_would_do(
    tmp_path: Path, budget: str, prices: Prices | None, unit: str
) -> None:
    path = tmp_path / "a.kvphase"
    with pytest.raises(UsageError) as refused:
        kvphase.check("toy:w8s4", out=path, budget=Budget.parse([budget], prices))
    told = re.search(unit, str(refused.value))
    assert told is not None, refused.value
    assert " s and " not in str(refused.value)
    run = kvphase.check("toy:w8s4", out=path, budget=Budget.parse([told[1]], prices))
    assert run.verdict.n > 0


def test_like_another_run_asks_the_very_same(tmp_path: Path) -> None:
    settings = replace(SMALL, confirm="never")
    first = kvphase.check("toy:full", settings, out=tmp_path / "a.kvphase")
    designs = tuple(r.stage.design for r in first.results if r.stage.kind == "needle")
    like = Settings(frozen=designs, seed=5)
    second = kvphase.check("toy:w8s4", replace(like, confirm="never"), out=tmp_path / "b.kvphase")
    mine, theirs = (
        [row[1] for row in rows(tmp_path / name) if row[0] == "needle-405"]
        for name in ("a.kvphase", "b.kvphase")
    )
    assert mine == theirs
    assert second.rung.stage.design == first.rung.stage.design


def test_a_named_probe_is_what_it_was(tmp_path: Path) -> None:
    design = PROBES["needle@1"][0]
    assert (design["context_tokens"], design["records"], design["contexts"]) == (2048, 64, 16)
    settings = Settings(frozen=PROBES["needle@1"], early=False)
    run = kvphase.check(
        "toy:full", settings, out=tmp_path / "a.kvphase", budget=Budget(questions=100)
    )
    assert stages(run) == ["needle-2048"]
    assert run.partial
    ids = [row[1] for row in rows(tmp_path / "a.kvphase")]
    again = kvphase.check(
        "toy:full", settings, out=tmp_path / "b.kvphase", budget=Budget(questions=100)
    )
    assert ids == [row[1] for row in rows(again.path)]


def test_labels_are_kept(tmp_path: Path) -> None:
    settings = Settings(questions=24, rungs=("405",), confirm="never", cold=0)
    run = kvphase.check("toy:full", settings, out=tmp_path / "a.kvphase", labels={"kv": "q8_0"})
    assert run_document(run).labels == {"kv": "q8_0"}


def test_the_plan_counts_what_is_then_asked(tmp_path: Path) -> None:
    settings = replace(SMALL, early=False, confirm="never")
    plan = run_sync(plan_run("toy:full", settings))
    run = kvphase.check("toy:full", settings, out=tmp_path / "a.kvphase")
    asked = run.totals["asked"]
    # The flip's prompts and the cold asks are prefills of their own.
    cost = plan.total
    shared = sum(r.stage.design.get("contexts", 0) for r in run.results)
    assert cost.questions + cost.prefills - shared == asked
    prefilled = run.totals["prefilled"] or 0
    assert abs(cost.prefill_tokens + cost.question_tokens - prefilled) < 0.05 * prefilled


def test_rungs_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rung"):
        kvphase.check("toy:full", Settings(rungs=("many",)), out=tmp_path / "a.kvphase")
    with pytest.raises(UsageError, match="does not fit"):
        kvphase.check("toy:full", Settings(rungs=("flip", "128k")), out=tmp_path / "b.kvphase")
    assert not (tmp_path / "b.kvphase").exists()


@pytest.mark.slow
def test_an_effect_of_the_question_is_named_and_is_not_phase(tmp_path: Path) -> None:
    with serving("toy:full", Faults.parse(["question-residue=1"])) as address:
        settings = Settings(questions=240, cold=4, seed=3)
        run = kvphase.check(address, settings, out=tmp_path / "a.kvphase")
    assert run.verdict.verdict == "unreliable"
    assert "question" in run.verdict.reason
    assert run.confirmation is not None
    assert run.confirmation.confirmation is not None
    assert run.confirmation.confirmation.status == "follows-question"
    flip = run.results[0].verdict
    assert flip is not None
    assert flip.verdict == "unreliable"
    assert all(r.verdict is None or r.verdict.verdict != "phase-sensitive" for r in run.results)


@pytest.mark.slow
def test_phase_is_confirmed_and_the_tail_is_flat(tmp_path: Path) -> None:
    run = kvphase.check("toy:w8s4", Settings(seed=1), out=tmp_path / "a.kvphase")
    assert (run.verdict.verdict, run.verdict.period) == ("phase-sensitive", 4)
    assert run.confirmation is not None
    found = run.confirmation.confirmation
    assert found is not None
    assert found.status == "follows-target"
    assert found.tail is not None
    assert found.tail.status == "flat"
