"""The version of this package, the one place that names it."""

from __future__ import annotations

__version__: str = "0.1.0"
