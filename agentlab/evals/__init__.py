"""Replays data sets through flows, grades what comes of it, and compares it.

Every arrow goes toward the disk: `stats` and `scorers` <- `store` <- `grade` <- `play`; `store` <- `compare`
<- `judge`, `report`; `grade`, `compare` <- `published`. `play` and `compare` do not know each other.
"""
