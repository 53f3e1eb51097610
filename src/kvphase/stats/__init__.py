"""The statistics: pure functions from answers to a verdict."""

from kvphase.stats.counts import measure_counts
from kvphase.stats.curve import curve
from kvphase.stats.intervals import wilson
from kvphase.stats.measure import measure

__all__ = ["curve", "measure", "measure_counts", "wilson"]
