"""The command line, run in this process."""

from __future__ import annotations

import sys

import pytest

from kvphase.cli import main


def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """Run ``kvphase WORDS`` in English: exit code, standard output, standard error."""
    monkeypatch.setenv("KVPHASE_LANG", "en")
    monkeypatch.setattr(sys, "argv", ["kvphase", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    shown = capsys.readouterr()
    return int(stop.value.code or 0), shown.out, shown.err
