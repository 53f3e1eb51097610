"""The page in a real browser: silent, self-contained, nowhere too wide, accessible."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hostile
from documents import facts, flip_only, full
from kvphase.report.facts import PageFacts
from kvphase.report.page import page
from kvphase.report.shift_page import shift_page
from report.test_shift_page import found_on_one, renamed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Dialog, Page, Request

    from kvphase.runs.shift import ShiftRun

pytestmark = pytest.mark.slow

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WIDTHS = (400, 700, 1000, 1400)
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PAGES = {
    "full-en": (full(), facts(), "en"),
    "toy-zh": (flip_only(), PageFacts(run="toy.kvphase"), "zh"),
    "hostile-en": (hostile.document(hostile.NAMES[3]), hostile.page_facts(hostile.NAMES[3]), "en"),
    "long-zh": (hostile.document("W" * 400), hostile.page_facts("W" * 400), "zh"),
}


def axe_source() -> str:
    """The accessibility checker's script."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), os.environ.get("KVPHASE_CHROMIUM"))
    if found is None or not all(map(find_spec, ("playwright", "axe_playwright_python"))):
        pytest.skip("needs chromium, playwright and axe-playwright-python")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=found, args=list(FLAGS), downloads_path=tmp_path_factory.mktemp("down")
        )
        yield started
        started.close()


SHIFTS = {"shift-en": None, "shift-zh": hostile.NAMES[3], "shift-long": "W" * 400}
"""Pages of a shift run, and what stands for every name in them."""


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> ShiftRun:
    return found_on_one(tmp_path_factory.mktemp("shifted"))


@pytest.fixture(scope="module", params=[*PAGES, *SHIFTS])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param in SHIFTS:
        run, name = request.getfixturevalue("shifted"), SHIFTS[request.param]
        shown = run if name is None else renamed(run, name)
        path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
        path.write_text(shift_page(shown, "zh" if name else "en"), "utf-8")
        return path
    document, counted, language = PAGES[request.param]
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(page(document, counted, language), "utf-8")  # type: ignore[arg-type]
    return path


def opened(browser: Browser, file: Path, **options: Any) -> tuple[Page, list[str]]:  # noqa: ANN401
    """The page, and what it said or asked for that it should not have."""
    shown = browser.new_context(**options).new_page()
    complaints: list[str] = []
    shown.on("console", lambda message: complaints.append(f"console: {message.text}"))
    shown.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    address = file.as_uri()

    def requested(request: Request) -> None:
        if request.url != address and not request.url.startswith("data:"):
            complaints.append(f"request: {request.url}")

    def asked(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    shown.on("request", requested)
    shown.on("dialog", asked)
    shown.goto(address)
    shown.wait_for_load_state("networkidle")
    return shown, complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_silent_self_contained_and_accessible(browser: Browser, file: Path, scheme: str) -> None:
    size = {"width": WIDTHS[0], "height": 900}
    shown, complaints = opened(browser, file, viewport=size, color_scheme=scheme)
    for width in WIDTHS:
        shown.set_viewport_size({"width": width, "height": 900})
        assert shown.evaluate(TOO_WIDE) <= 0, width
        broken = shown.evaluate("[...document.images].filter(i => !i.naturalWidth).length")
        assert broken == 0
    for width in (WIDTHS[0], WIDTHS[-1]):
        shown.set_viewport_size({"width": width, "height": 900})
        shown.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert shown.evaluate(TOO_WIDE) <= 0, width
        shown.evaluate(axe_source())
        found = shown.evaluate("axe.run()")
        assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]] == []
        assert len(found["passes"]) > 20
    assert complaints == []
    shown.context.close()


def test_it_needs_no_script_and_the_keyboard_reaches_everything(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(full(), facts(), "en"), "utf-8")
    shown, complaints = opened(browser, path, viewport={"width": 400, "height": 900})
    active = "document.activeElement.className + document.activeElement.tagName"
    shown.keyboard.press("Tab")
    assert shown.evaluate(active) == "skipA"
    shown.keyboard.press("Enter")
    assert shown.evaluate("document.activeElement.id") == "result"
    reached = set()
    for _ in range(60):
        shown.keyboard.press("Tab")
        reached.add(shown.evaluate(active))
    assert {"A", "SUMMARY", "scrollDIV", "PRE"} <= reached
    with shown.expect_download() as waited:
        shown.get_by_text("SVG").first.click()
    assert waited.value.suggested_filename == "kvphase-curve.svg"
    assert waited.value.path().read_text("utf-8").startswith("<svg")
    assert complaints == []
    shown.context.close()
