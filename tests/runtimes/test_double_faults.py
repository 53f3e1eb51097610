"""Faults of a served toy, through the adapters, as a run meets them: waited out, or the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvphase.errors import RuntimeFault, TransientFault
from kvphase.runs import patience
from kvphase.runs.execute import complete
from kvphase.runtimes.adapters import Choice
from runtimes.toys import answered, measured, questions, tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from kvphase.types import Reply, Runtime

DIALECTS = ("vllm", "sglang", "openai", "chat")


def choice(dialect: str, folder: Path) -> Choice:
    """The tokenizer, where the server shows none."""
    if dialect in ("vllm", "sglang"):
        return Choice()
    return Choice(tokenizer=tokenizer(folder, template=dialect == "chat"))


async def asked(runtime: Runtime) -> list[Reply]:
    """As a run asks: with patience."""
    return [await complete(ask, runtime) for ask in questions(runtime.limits.bos)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_server_that_is_busy_now_and_then_answers_in_the_end(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "BUSY_WAITS", (0.0,) * 9)
    waited: list[float | None] = []

    def noted(*arguments: object) -> float:
        waited.append(getattr(arguments[1], "wait", None))
        return 0.0

    monkeypatch.setattr("kvphase.runs.execute.pause", noted)
    there = measured(dialect, answered, choice=choice(dialect, tmp_path))
    busy = measured(dialect, asked, choice=choice(dialect, tmp_path), faults="429=0.3,after=8")
    assert [reply.text for reply in busy] == [reply.text for reply in there]
    assert waited
    assert all(wait is not None and wait > 0 for wait in waited)  # the server said how long


@pytest.mark.parametrize("at", [7, 9, 11])
def test_a_llama_server_that_comes_back_with_another_model_stops_the_run(at: int) -> None:
    with pytest.raises(RuntimeFault, match="answers with another model: toy:w4s4 instead of"):
        measured("llama-server", asked, choice=Choice(), faults=f"restart={at}")


@pytest.mark.parametrize(("dialect", "at"), [("sglang", 5), ("openai", 6), ("chat", 6)])
def test_another_model_after_a_restart_stops_the_run(dialect: str, at: int, tmp_path: Path) -> None:
    # The request that breaks is a question whose prefix was found before, so it is sent again.
    with pytest.raises(RuntimeFault, match="answers with another model: toy:w4s4 instead of"):
        measured(dialect, asked, choice=choice(dialect, tmp_path), faults=f"restart={at}")


async def asked_whole(runtime: Runtime) -> list[Reply]:
    """As a run asks, each prompt for itself: all are short, so any of them is sent again."""
    asks = questions(runtime.limits.bos)
    return [await complete(replace(ask, prefix=(), suffix=ask.prompt), runtime) for ask in asks]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_model_is_noticed_between_short_prompts(dialect: str, tmp_path: Path) -> None:
    # Request 8 is one of the nine questions of every dialect: four or fewer come before them.
    with pytest.raises(RuntimeFault, match="answers with another model: toy:w4s4 instead of"):
        measured(dialect, asked_whole, choice=choice(dialect, tmp_path), faults="restart=8")


@pytest.mark.parametrize(("dialect", "at"), [("vllm", 8), ("sglang", 6), ("openai", 4)])
def test_a_prefill_that_breaks_off_with_a_restart_stops_the_run(
    dialect: str, at: int, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeFault, match=r"connection broke .* prefilled") as caught:
        measured(dialect, asked, choice=choice(dialect, tmp_path), faults=f"restart={at}")
    assert not isinstance(caught.value, TransientFault)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_prompt_that_is_cut_stops_the_run(dialect: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault, match=r"cut or changed the prompt|other tokens"):
        measured(dialect, asked, choice=choice(dialect, tmp_path), faults="cut=40,after=8")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_that_says_nothing_is_wrong_and_no_fault(dialect: str, tmp_path: Path) -> None:
    replies = measured(dialect, asked, choice=choice(dialect, tmp_path), faults="empty,after=8")
    assert replies[-1].text == ""
    assert replies[-1].finished
