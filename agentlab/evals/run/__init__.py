"""Plays every conversation of a run through every flow and writes the run folder.

Import `run` from `runner`, `RunProgress` from `pace`, `estimate` from `budget`, `RunFolder` from `folder`.
"""
