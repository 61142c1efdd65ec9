"""Run folders: writing them, their checksums, and reading them as rows, sums and measures.

`folder` writes a run, `ledger` its events, `checksums` its checksums. `run` opens an existing run, `rows` are its
types. `fold` and `summary` make its sums, `measures` lists what can be compared. All other rooms of evals use it.
"""
