"""Answers that change when simply asked again are named, and withhold nothing."""

from __future__ import annotations

import pytest

from kvphase.stats.audit import failed, unrepeatable
from kvphase.types import Audit


@pytest.mark.parametrize(("flips", "asked"), [(0, 100), (1, 100), (4, 100), (0, 0), (1, 12)])
def test_few_flips_are_no_matter(flips: int, asked: int) -> None:
    assert unrepeatable(Audit(repeated=asked, repeat_flips=flips)) is None


@pytest.mark.parametrize(("flips", "asked"), [(7, 100), (30, 100), (12, 16)])
def test_what_two_in_a_hundred_do_not_explain_is_said(flips: int, asked: int) -> None:
    found = Audit(repeated=asked, repeat_flips=flips)
    note = unrepeatable(found)
    assert note is not None
    assert f"{flips} of {asked} answers changed" in note
    assert failed(found) is None
