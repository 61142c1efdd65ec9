"""Grading of turns: scores, fingerprints of the graders, and regrading of finished runs.

`grader`: `Grader`, which applies the scorers to a turn and checks the ledger of a conversation; `regrade`, which grades
a run again. `fingerprints`: hashes of the grading code, which decide if two runs are comparable.
`imported`: grades answers of other systems, and presents their passages as searches.
"""
