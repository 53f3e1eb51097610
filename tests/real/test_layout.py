"""``kvphase layout`` on a real server with a chat template: written, asked both ways."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from commands import command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.slow]

USER = (
    "The river was high that spring.\n\n{{mark}}The code of the door is 8417.{{/mark}}\n\n"
    "Nobody came for a long time.\n\n{{mark}}The number of the cellar is 52.{{/mark}}\n\n"
    "What is the code of the door?"
)


@pytest.mark.parametrize("change", ["pad", "repeat"])
def test_a_chat_is_laid_out_written_and_verified(
    smollm2: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": USER}]
    request = {"messages": chat, "max_tokens": 3}
    (tmp_path / "chat.json").write_text(json.dumps(request), encoding="utf-8")
    grid = ("--profile", "published:deepseek-v4-flash") if change == "pad" else ("--stride", "4")
    words = ("layout", "chat.json", *grid, "--change", change, "--write", "better.json")
    asked = ("--verify", smollm2, "--answer", "8417", "--match", "contains", "--out", "v.kvphase")
    code, shown, err = command(monkeypatch, capsys, *words, *asked, "--json")
    assert code == 0, err
    found = json.loads(shown)
    assert len(found["verified"]["answers"]) == 1
    assert (tmp_path / "v.kvphase").exists()
    written = json.loads((tmp_path / "better.json").read_text("utf-8"))
    assert written["max_tokens"] == 3
    assert written["messages"][0] == chat[0]
    text = written["messages"][1]["content"]
    assert "{{" not in text
    assert text.count("The code of the door is 8417.") == (2 if change == "repeat" else 1)
    # What was written is what a client would send: its positions are those that were told.
    code, shown, err = command(
        monkeypatch, capsys, "layout", "better.json", smollm2, "--stride", "4", "--json"
    )
    assert code == 0, err
    again = json.loads(shown)["prompts"][0]
    assert again["tokens"] == found["prompts"][0]["tokens_after"]
