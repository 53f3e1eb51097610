# ruff: noqa: RUF001 - Chinese punctuation
"""Rungs and confirmation on hand-made values, in both languages."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from typing import Any, get_args

import pytest
from rich.cells import cell_len

from kvphase.catalogue import Catalogue, Language, message
from kvphase.report.ladder import rung_name, show_confirmation, show_rungs
from kvphase.report.lines import console
from kvphase.schema import ConfirmJson, LengthJson, SkippedJson, VerdictFile
from kvphase.stats.confirmed import Confirmation, ConfirmStatus, Factor, Tail, TailStatus
from kvphase.types import Audit, Gap, Phase, VerdictName

LANGUAGES: tuple[Language, ...] = ("en", "zh")
NOTHING: dict[str, Any] = {"prefilled": None, "cached": None, "generated": None}


def rung(name: str, **changes: Any) -> LengthJson:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {
        "rung": name,
        "context_tokens": None,
        "design": "insequence",
        "records": 24,
        "modulus": 8,
        "adapted": False,
        "partial": False,
        "verdict": "phase-sensitive",
        "reason": "",
        "would_settle": None,
        "period": 4,
        "p_value": 0.0001,
        "mean": 0.536,
        "worst": asdict(Phase(2, 0.411)),
        "best": None,
        "mde_pp": 6.0,
        "gap": asdict(Gap(21.2, 3.4, 17.2, (11.2, 23.3), "contexts")),
        "curve": (),
        "n": 3600,
        "contexts": 8,
        "looks": (),
        "audit": asdict(Audit()),
        "notes": (),
        "balance": None,
        "tokens": NOTHING,
        "seconds": None,
    }
    return LengthJson.model_validate({**fields, **changes})


def document(*rungs: LengthJson, skipped: tuple[SkippedJson, ...] = ()) -> VerdictFile:
    """Only what is shown here; the other fields are left out."""
    return VerdictFile.model_construct(per_length=rungs, skipped=skipped, rung=rungs[-1].rung)


def shown(*rungs: LengthJson, language: Language = "en", **more: Any) -> list[str]:  # noqa: ANN401
    stream = io.StringIO()
    skipped = more.pop("skipped", ())
    show_rungs(document(*rungs, skipped=skipped), console(stream), Catalogue(language), **more)
    return tidy(stream)


def tidy(stream: io.StringIO) -> list[str]:
    lines = stream.getvalue().splitlines()
    assert all(line == line.rstrip() and cell_len(line) <= 80 for line in lines), lines
    return lines


def test_one_line_a_rung() -> None:
    gap = asdict(Gap(30.0, 20.0))
    lines = shown(
        rung("flip", verdict="inconclusive", worst=None, n=64, gap=gap, partial=True),
        rung("needle-2048"),
    )
    assert lines[-3].split() == [
        "flip",
        "inconclusive",
        "53.6%",
        "-",
        "30.0",
        "raw",
        "64",
        "partial",
    ]
    assert lines[-2].split() == [
        "2k", "phase-sensitive", "53.6%", "2", "at", "41.1%", "17.2", "3,600",
    ]  # fmt: skip
    assert lines[-1] == "The verdict above rests on rung 2k."
    assert any(line.startswith("flip: short prompts") for line in lines)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", get_args(VerdictName))
def test_columns_stand_below_their_heads(language: Language, name: VerdictName) -> None:
    lines = shown(rung("needle-131072", verdict=name), language=language)
    head, row = lines[-2:]
    assert cell_len(head) == cell_len(row)
    assert "128k" in row


def test_a_skipped_rung_says_why_in_the_readers_language() -> None:
    why = message("note.shared", shared=4)
    skipped = (SkippedJson(rung="needle-32768", why=why),)
    lines = shown(rung("needle-2048"), skipped=skipped)
    assert lines[3].startswith("  32k        not measured: Targets of one prefill")
    assert lines[4].startswith(" " * 13)
    chinese = shown(rung("needle-2048"), skipped=skipped, language="zh", messages={str(why): why})
    assert "没有测量：同一次预填充" in chinese[3]


def test_names_of_rungs() -> None:
    names = {"needle-2048": "2k", "needle-405": "405", "flip": "flip", "imported": "file"}
    names |= {"pilot-8192": "8k pilot", "confirm-8192": "8k shifted"}
    for rung_, short in {**names, "odd\x1b": "odd\N{REPLACEMENT CHARACTER}"}.items():
        assert rung_name(rung_) == short


FACTORS = (
    Factor("target", 0.0001, 17.2, (5.0, 2.0, -12.2, 5.2), 6.1),
    Factor("question", 0.43, 2.1, (0.1, 0.2, 0.3, -0.6), 6.3),
    Factor("distance", None, None, (), None),
)
TAIL = Tail("flat", 5.0, 2.1, 4.8, (), 480)
CONFIRMED = Confirmation(
    "follows-target", message("note.shared", shared=4), 4, FACTORS, (), TAIL, 960, 8
)


def confirmed(
    confirm: Confirmation | ConfirmJson,
    language: Language = "en",
    **more: Any,  # noqa: ANN401
) -> list[str]:
    stream = io.StringIO()
    show_confirmation(confirm, console(stream), Catalogue(language), **more)
    return tidy(stream)


def test_a_confirmation() -> None:
    lines = confirmed(CONFIRMED)
    assert lines[0].startswith("Confirmed by moving the same text")
    assert "position of the fact          0.0001            17.2          from 6.1" in lines[4]
    assert "cannot be told apart" in lines[6]
    assert "stays flat, at most 4.8 points off its mean" in " ".join(lines[7:9])
    assert lines[-1] == "960 answers on 8 contexts."


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("status", get_args(ConfirmStatus))
@pytest.mark.parametrize("tail", [*get_args(TailStatus), None])
def test_every_status_has_words(
    language: Language, status: ConfirmStatus, tail: TailStatus | None
) -> None:
    control = None if tail is None else replace(TAIL, status=tail)
    lines = confirmed(replace(CONFIRMED, status=status, tail=control), language)
    heads = next(line for line in lines if "4" in line and ("p value" in line or "p 值" in line))
    row = lines[lines.index(heads) + 1]
    assert cell_len(heads) == cell_len(row)
    assert any("Tail control" in line or "尾部对照" in line for line in lines) == bool(tail)


def test_a_confirmation_from_a_file() -> None:
    fields = {**asdict(CONFIRMED), "rung": "needle-2048", "partial": True}
    confirm = ConfirmJson.model_validate(fields)
    lines = confirmed(confirm, "zh", messages={str(CONFIRMED.reason): CONFIRMED.reason})
    assert "同一次预填充" in lines[1]
    assert "未完" in lines[-1]
