"""Replays data sets through flows, grades what comes of it, and compares it.

Every arrow goes toward the disk: `stats` <- `store`; `scorers`, `store` <- `grade` <- `play`; `scorers`, `store`
<- `compare` <- `report`; `store` <- `judge`; `grade`, `compare` <- `published`. `play` and `compare` do not know each
other.
"""
