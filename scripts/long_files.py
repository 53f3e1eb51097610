"""Fails if a source file has grown beyond what one person reads in one sitting."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 420
root = Path(__file__).resolve().parent.parent / "src"
long = {p: n for p in root.rglob("*.py") if (n := p.read_text("utf-8").count("\n")) > LIMIT}
for path, lines in sorted(long.items()):
    sys.stderr.write(f"{path.relative_to(root)}: {lines} lines, at most {LIMIT}\n")
sys.exit(bool(long))
