"""Replays data sets through flows, grades what comes of it, and compares it.

`run` plays, `results` reads what was played, `scorers` grade it, `compare` decides; import from their modules.
"""
