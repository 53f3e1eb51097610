"""The shipped toys, measured as a user does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kvphase

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_the_compressed_toy_is_phase_sensitive_with_period_four(tmp_path: Path) -> None:
    run = kvphase.check("toy:w8s4", kvphase.Settings(seed=1), out=tmp_path / "a.kvphase")
    found = run.verdict
    assert (found.verdict, found.period) == ("phase-sensitive", 4)
    assert found.audit.cold_flips == found.audit.repeat_flips == 0
    assert (run.totals["cached"] or 0) > 10 * (run.totals["prefilled"] or 0)
    assert not run.partial


@pytest.mark.parametrize(("name", "stride"), [("w4s4", 4), ("w8s8", 8)])
def test_toys_without_overlap_have_the_period_of_their_stride(
    name: str, stride: int, tmp_path: Path
) -> None:
    settings = kvphase.Settings(seed=1, cold=10)
    found = kvphase.check(f"toy:{name}", settings, out=tmp_path / "a.kvphase").verdict
    assert (found.verdict, found.period) == ("phase-sensitive", stride)
    assert found.audit.cold_flips == found.audit.repeat_flips == 0


def test_its_control_shows_nothing_and_would_have_shown_ten_points(tmp_path: Path) -> None:
    found = kvphase.check("toy:full", kvphase.Settings(seed=1), out=tmp_path / "a.kvphase").verdict
    assert found.verdict == "not-detected"
    assert 0.6 < found.mean < 0.95
    assert found.mde_pp is not None
    assert found.mde_pp <= 10


def test_prefix_padding_agrees_on_the_period(tmp_path: Path) -> None:
    settings = kvphase.Settings(design="prefix", seed=1, cold=10)
    found = kvphase.check("toy:w8s4", settings, out=tmp_path / "a.kvphase").verdict
    assert (found.verdict, found.period) == ("phase-sensitive", 4)
