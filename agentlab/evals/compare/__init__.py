"""Paired comparison of flows and runs: measures, statistics, the gate, and what they print.

Import `compare` from `pairs`, `gate` and `judge` from `gate`, the rest from its module.
"""
