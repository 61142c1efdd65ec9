"""Paired comparison of flows and runs: measures, statistics, the gate, and what they print.

Import `compare` from `pairs`, `judge` and `gate_run` from `gate`, the rest from its module.
"""
