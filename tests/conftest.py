"""In CI a skipped test is a failure: what cannot run there is run by hand and recorded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if anything was skipped in CI."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = [] if reporter is None else reporter.stats.get("skipped", [])
    if os.environ.get("CI") and skipped:
        session.exitstatus = 1
