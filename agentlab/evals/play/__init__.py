"""Plays every conversation of a run through every flow and hands what happened to the store.

Import `run` from `runner`, `estimate` from `budget`; `shards` splits a run over processes, `fork` plays another
flow from turn N on.
"""
