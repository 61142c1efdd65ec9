"""Plays every conversation of a run through every flow and writes the run folder.

Import `run` and `RunProgress` from `runner`, `estimate` from `budget`, `RunFolder` from `folder`.
"""
