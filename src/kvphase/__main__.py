"""``python -m kvphase``."""

from kvphase.cli import main

main()
