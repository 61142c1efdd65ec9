"""Evaluations: runs data sets through flows, grades the replies and compares flows and runs.

`scorers`: the metrics, one file each. `grade`: the grader of a turn. `play`: runs. `store`: run folders and measures.
`compare`: differences, headline, gate, causes. `stats`: statistics on arrays. `report`: page, tables, exports.
`judge`: a model as a grader. `published`: answers of other systems. `cost.py`: cost and latency for other prices.

Imports go one way: `stats` <- `store`; `scorers`, `store` <- `grade` <- `play`; `scorers`, `store` <- `compare` <-
`report`; `store` <- `judge`; `grade`, `compare` <- `published`. `play` and `compare` do not import each other.
"""
