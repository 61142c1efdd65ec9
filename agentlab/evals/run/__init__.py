"""Plays every conversation of a run through every flow and writes the run folder.

Import `run` and `Progress` from `runner`, `estimate` from `estimate`, `RunFolder` from `folder`.
"""
