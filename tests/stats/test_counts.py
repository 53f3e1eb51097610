from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from kvphase.errors import UsageError
from kvphase.stats import measure_counts

PUBLISHED: dict[str, Any] = json.loads(
    resources.files("kvphase.data").joinpath("published.json").read_text("utf-8")
)
NIAH = PUBLISHED["niah"]["models"]
FULL, W8S8 = PUBLISHED["controlled"]["models"]


@pytest.mark.parametrize(
    ("row", "period", "gap"),
    [(0, 4, 40.23), (1, 4, 19.14), (2, 4, 34.77), (3, 4, 14.84), (4, 2, 6.09)],
)
def test_published_needle_rows(row: int, period: int, gap: float) -> None:
    model = NIAH[row]
    verdict = measure_counts(range(8), [model["n"]] * 8, model["correct"])
    assert verdict.verdict == "phase-sensitive"
    assert verdict.period == period
    assert round(verdict.gap.raw_pp, 2) == gap == model["gap_pp"]
    assert verdict.p_value == 1 / 10_000
    assert verdict.gap.null_pp < gap / 2
    assert any("design effect" in note for note in verdict.notes)


def test_published_wilson_interval() -> None:
    model = NIAH[0]
    verdict = measure_counts(range(8), [256] * 8, model["correct"])
    # 112 of 256, worked out by hand from Wilson's formula.
    assert verdict.curve[0].ci95 == pytest.approx((0.3781, 0.4987), abs=5e-5)


def test_published_full_attention_row_has_no_period() -> None:
    correct = [round(accuracy * 10.24) for accuracy in FULL["acc"]]
    verdict = measure_counts(range(24), [1024] * 24, correct)
    assert verdict.verdict == "not-detected"
    assert verdict.period is None


def test_published_stride_eight_row() -> None:
    correct = [round(accuracy * 10.24) for accuracy in W8S8["acc"]]
    verdict = measure_counts(range(24), [1024] * 24, correct)
    assert (verdict.verdict, verdict.period) == ("phase-sensitive", 8)
    assert verdict.gap.raw_pp == pytest.approx(75.3, abs=0.05)


def test_one_cycle_cannot_show_that_it_repeats() -> None:
    verdict = measure_counts(range(4), [256] * 4, NIAH[0]["correct"][:4])
    assert (verdict.verdict, verdict.period) == ("inconclusive", None)
    assert verdict.would_settle is not None
    assert "two cycles" in verdict.would_settle


def test_order_and_start_of_residues_do_not_matter() -> None:
    n, correct = [256] * 8, NIAH[0]["correct"]
    straight = measure_counts(range(8), n, correct)
    back = measure_counts(range(7, -1, -1), n, correct[::-1])
    assert back == straight


@pytest.mark.parametrize(("correct", "name"), [([0] * 8, "saturated"), ([50] * 8, "saturated")])
def test_all_right_and_all_wrong(correct: list[int], name: str) -> None:
    assert measure_counts(range(8), [50] * 8, correct).verdict == name


def test_no_answers() -> None:
    assert measure_counts(range(8), [0] * 8, [0] * 8).verdict == "inconclusive"


def test_an_empty_residue_is_no_trouble() -> None:
    verdict = measure_counts(range(4), [50, 0, 50, 50], [40, 0, 41, 39])
    assert [at.residue for at in verdict.curve] == [0, 2, 3]
    assert verdict.mde_pp is None


@pytest.mark.parametrize(
    ("residue", "n", "correct", "words"),
    [
        ([3], [10], [5], "single residue"),
        ([0, 0], [10, 10], [5, 5], "twice"),
        ([0, 2], [10, 10], [5, 5], "leave some out"),
        ([0, 1], [10, 10], [11, 5], "11 right answers of 10"),
        ([0, 1], [10, 10], [-1, 5], "-1 right"),
        ([0, 1], [10], [5, 5], "differ in number"),
    ],
)
def test_bad_counts_are_refused(
    residue: list[int], n: list[int], correct: list[int], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        measure_counts(residue, n, correct)
