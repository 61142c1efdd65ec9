"""Paired comparison of flows and runs: what differs, what to ship, the gate, causes of poor turns.

Import `compare` from `pairs`, `gate` and `judge` from `gate`, the rest from its module.
"""
