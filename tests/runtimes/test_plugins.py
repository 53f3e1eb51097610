"""Kinds of targets that other packages open."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from fakes import FakeRuntime
from kvphase.errors import UsageError
from kvphase.runs.check import run_sync
from kvphase.runtimes import detect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kvphase.types import Runtime


@asynccontextmanager
async def opened(rest: str) -> AsyncIterator[FakeRuntime]:
    runtime = FakeRuntime()
    runtime.asked.append(rest)
    yield runtime


async def entered(target: str) -> Runtime:
    async with detect.open_runtime(target) as runtime:
        return runtime


def test_a_kind_is_opened_by_the_package_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "test_plugins:opened", detect.__name__)
    monkeypatch.setattr(EntryPoint, "load", lambda _: opened)
    monkeypatch.setattr(detect, "plugins", lambda: {"mine": entry})
    runtime = run_sync(entered("mine:some/where:else"))
    assert isinstance(runtime, FakeRuntime)
    assert runtime.asked == ["some/where:else"]
    with pytest.raises(UsageError, match="is not a target"):
        run_sync(entered("yours:some/where"))


def test_the_lab_is_one_of_them() -> None:
    assert detect.plugins()["lab"].value == "kvphase.lab.runtime:open_checkpoint"


@pytest.mark.parametrize("target", ["http://127.0.0.1:9", "https://127.0.0.1:9"])
def test_no_plugin_takes_an_address(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("http", "nowhere:open", detect.__name__)
    monkeypatch.setattr(detect, "plugins", lambda: {"http": entry, "https": entry})
    assert hasattr(detect.open_runtime(target), "__aenter__")


def test_a_kind_whose_packages_are_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = EntryPoint("lab", "no.such.module:open", detect.__name__)
    monkeypatch.setattr(detect, "plugins", lambda: {"lab": entry})
    with pytest.raises(UsageError, match=r"pip install 'kvphase\[lab\]'"):
        detect.open_runtime("lab:x")
