"""Decisions on finished runs: which of several is better, and whether one is good enough."""
