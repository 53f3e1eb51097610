# ruff: noqa: RUF001 - Chinese punctuation
"""What the terminal shows, on hand-made values, in both languages."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from rich.cells import cell_len

from kvphase.catalogue import Catalogue, Language, message
from kvphase.probes.imported import ImportedCounts, analyze
from kvphase.report.endpoint import show_endpoint
from kvphase.report.lines import Glyphs, console
from kvphase.report.progress import Progress, span
from kvphase.report.terminal import (
    audit_line,
    curve_lines,
    looks_line,
    show_run,
    show_traffic,
    show_verdict,
)
from kvphase.runs.check import Run
from kvphase.runs.inspect import Endpoint
from kvphase.runs.stages import Result, Skipped, Stage
from kvphase.stats.confirmed import Confirmation
from kvphase.types import About, Audit, CurvePoint, Gap, Limits, Look, Phase, Verdict, VerdictName

LANGUAGES: tuple[Language, ...] = ("en", "zh")
STAGE = Stage(
    name="needle-405",
    kind="needle",
    questions=3712,
    prefills=8,
    tokens=405,
    modulus=8,
    seed=0,
    design={"kind": "insequence", "records": 24},
    looks=(2, 4, 6, 8),
)
AUDIT = Audit(repeated=100, repeat_flips=1, cold=12, cold_flips=2, near_ties=1, asked=3600)


def point(residue: int, n: int, correct: int) -> CurvePoint:
    share = correct / n if n else 0.0
    return CurvePoint(residue, n, correct, share, (max(0.0, share - 0.05), min(1.0, share + 0.05)))


def verdict(**changes: Any) -> Verdict:  # noqa: ANN401 - any field
    made = Verdict(
        verdict="phase-sensitive",
        reason=message("verdict.reason.phase-sensitive", period=4, p=0.0001, gap="17.2"),
        would_settle=None,
        measure="accuracy",
        alpha=0.005,
        modulus=8,
        period=4,
        p_value=0.0001,
        gap=Gap(21.2, 3.4, 17.2, (11.2, 23.3), message("verdict.over.contexts")),
        mean=0.536,
        worst=Phase(6, 0.409),
        best=Phase(1, 0.604),
        mde_pp=6.1,
        curve=tuple(point(r, 450, 270 - 80 * (r % 4 == 2)) for r in range(8)),
        audit=AUDIT,
        n=3600,
        contexts=150,
        notes=(message("note.shared", shared=8),),
    )
    return replace(made, **changes)


def run(**manifest: Any) -> Run:  # noqa: ANN401 - any entry
    entries = {
        "model": "toy:w8s4",
        "target": "toy:w8s4",
        "toy": True,
        "template": "none",
        "thinking": "off",
        "seed": 0,
    }
    totals: dict[str, int | float | None] = {
        "asked": 3712,
        "seconds": 19.4,
        "prefilled": 81_000,
        "cached": 1_500_000,
    }
    part = Result(STAGE, verdict(), None, totals)
    return Run(
        path=Path("a.kvphase"),
        manifest={**entries, **manifest},
        verdict=verdict(),
        totals=totals,
        partial=False,
        rung=part,
        results=(part,),
    )


class Paper(io.TextIOWrapper):
    """A stream in one encoding, as a redirected console is."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="backslashreplace", newline="\n")

    def text(self) -> str:
        """What was written."""
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode(self.encoding)


def tidy(text: str) -> list[str]:
    """The lines, after a look at widths and line ends."""
    lines = text.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert max(map(cell_len, lines)) <= 80
    return lines


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "ascii"])
def test_a_run_in_80_columns_on_any_console(language: Language, encoding: str) -> None:
    paper = Paper(encoding)
    show_run(run(), console(paper), Catalogue(language))
    text = paper.text()
    if encoding != "ascii" or language == "en":
        lines = tidy(text)
        assert "\\u" not in text
        bars = [line for line in lines if "n=450" in line]
        assert len(bars) == 8
        assert len({line.index("n=450") for line in bars}) == 1
    assert ("█" in text) == (encoding == "utf-8")


def test_a_newcomer_is_told_the_words() -> None:
    paper = Paper()
    show_run(run(), console(paper))
    text = paper.text()
    assert "DEMO: toy model, not yours" in text
    assert "w8s4: window 8, stride 4" in text
    assert "Residue: what is left over" in text
    assert "Gap (best minus worst residue)" in text
    assert "Prefill: the model reads its prompt" in text
    assert "over contexts" in " ".join(text.split())


def test_the_same_in_chinese() -> None:
    paper = Paper()
    show_run(run(model="full", template="abc"), console(paper), Catalogue("zh"))
    text = paper.text()
    for words in (
        "演示：玩具模型，不是你的模型",
        "完整注意力",
        "对话模板",
        "相位敏感（phase-sensitive）：",
        "预填充：",
        "最差位置余数 6（40.9%）",
        "取自各个上下文",
    ):
        assert words in text.replace("\n", "")


def test_a_real_models_name_is_not_explained_and_cannot_drive_the_terminal() -> None:
    paper = Paper()
    show_run(run(model="w8s4 \x1b[2J\x9b31m", toy=False), console(paper))
    text = paper.text()
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "window" not in text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", get_args(VerdictName))
def test_every_verdict_has_words(language: Language, name: VerdictName) -> None:
    paper = Paper()
    shown = verdict(verdict=name, would_settle=message("verdict.settle.aperiodic"))
    show_verdict(shown, console(paper), Catalogue(language), partial=True)
    lines = tidy(paper.text())
    assert any(line.startswith(("What would settle it", "怎样才能有定论")) for line in lines)
    assert any("(partial run)" in line or "（测量未完）" in line for line in lines)
    assert any(name in line for line in lines)


@pytest.mark.parametrize("language", LANGUAGES)
def test_plain_counts(language: Language) -> None:
    found = analyze(ImportedCounts((0, 1), (10, 10), (5, 6)))
    paper = Paper()
    show_verdict(found, console(paper), Catalogue(language))
    lines = tidy(paper.text())
    if language == "zh":
        assert all(
            any(ord(c) > 0x2FFF for c in line) for line in lines if "n=" not in line and line
        )


def test_bars_give_way_to_long_counts_and_empty_residues_say_so() -> None:
    points = [point(0, 999_999_999, 5), point(1, 0, 0)]
    lines = [line.plain for line in curve_lines(points, 2, Glyphs.of("utf-8"))]
    assert max(map(cell_len, lines)) <= 80
    assert "none asked" in lines[2]
    assert "没有问过" in curve_lines(points, 2, Glyphs.of("utf-8"), Catalogue("zh"))[2].plain


def test_the_audit_line_names_what_was_asked_again() -> None:
    assert audit_line(Audit(asked=9)) is None
    assert audit_line(AUDIT) == (
        "Audit, answers that changed: 1 of 100 when repeated, "
        "2 of 12 without the prefix cache (1 at near ties)."
    )
    alone = audit_line(replace(AUDIT, alone=12))
    assert alone is not None
    assert alone.endswith(", 0 of 12 when asked alone.")


def test_looks() -> None:
    first, rest = Look(900, 0.0001, 0.1), Look(1800, 0.3, 0.9)
    assert looks_line((), 3600) is None
    assert looks_line((first,), 900, planned=3600, fresh=False) is not None
    early = looks_line((first,), 900 + 1, planned=3600)
    assert early == (
        "Found early, at look 1, after 900 of 3,600 questions; level and gap come from the 901 "
        "asked afterwards."
    )
    assert "of 3,600" not in str(looks_line((first,), 901))
    assert "may be flattered" in str(looks_line((first,), 900, fresh=False))
    assert "Looked 2 times" in str(looks_line((first, rest), 1800))
    assert "第 1 次" in str(looks_line((first,), 901, Catalogue("zh")))


def test_traffic_is_only_mentioned_if_there_was_any() -> None:
    paper = Paper()
    show_traffic(False, console(paper))
    assert paper.text() == ""
    show_traffic(True, console(paper))
    assert "Other requests" in paper.text()


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_endpoint_in_a_column(language: Language) -> None:
    about = About("http://127.0.0.1", "llama-server", extra={"slots": "4", "colour": "red\x1b[0m"})
    why = "no two words stand beside each other without merging, " * 3
    for limits in (Limits(4096), Limits(4096, False, 5, False, False, bos=(1,))):
        paper = Paper()
        endpoint = Endpoint(about, limits, None, why, chat=False)
        show_endpoint(endpoint, console(paper), Catalogue(language))
        lines = tidy(paper.text())
        assert "\x1b" not in paper.text()
        values = next(line for line in lines if line.endswith(" 4"))
        assert cell_len(values) == 24
        assert ("slots" in values) == (language == "en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_progress_lines(language: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvphase.report.progress._LINE_EVERY", 0.0)
    paper, opened = Paper(), list[Path]()
    ask = SimpleNamespace(arm="screen", target=3)
    event: Any = SimpleNamespace(
        ask=ask, correct=1, prefilled=400, cached=0, generated=1, replayed=False
    )
    flip = replace(STAGE, name="flip", kind="flip", tokens=None)
    shifted = replace(STAGE, name="confirm-2048", kind="confirm")
    found = Confirmation("follows-target", "", 4, (), (), None, 9, 1)
    with Progress(console(paper), opened.append, Catalogue(language)) as progress:
        progress.opened(About("toy:w8s4", "toy", toy=True), Path("a.kvphase"))
        progress.begins(flip)
        progress.begins(STAGE)
        progress.answered(event)
        progress.ends(Result(STAGE, verdict(), None, {}))
        progress.ends(Result(shifted, None, found, {}))
        progress.ends(Result(shifted, None, None, {}))
        progress.skips(Skipped("needle-8192", message("note.shared", shared=4)))
    lines = tidy(paper.text())
    assert opened == [Path("a.kvphase")]
    said = {
        "en": (
            "toy:w8s4   DEMO: toy model, not yours",
            "flip: 3,712 short prompts",
            "405: 3,712 questions, repeats and audits included; prefill 8 × 405 tokens",
            "1 of 3,712, mean 100.0%",
            "405: phase-sensitive, mean 53.6%, 3,600 answers",
            "2k shifted: Confirmed by moving",
            "8k: not measured: Targets",
        ),
        "zh": (
            "toy:w8s4   演示：玩具模型，不是你的模型",
            "翻转：3,712 个短提示词",
            "405：3,712 个问题（含重复与审计），8 次预填充，每次 405 个 token",
            "3,712 个中已答 1 个，平均 100.0%",
            "405：相位敏感，平均 53.6%，3,600 个答案",
            "2k 平移：平移同样的文本，得到确认",
            "8k：没有测量：同一次预填充",
        ),
    }
    firsts = [next((x for x in lines if x.startswith(words)), None) for words in said[language]]
    assert None not in firsts, lines


def test_times() -> None:
    assert [span(seconds) for seconds in (5, 600, 7200)] == ["5 s", "10 min", "2.0 h"]
