"""Run folders: writing, checksums, and reading as rows, sums and measures.

`folder` writes a run, `ledger` its events, `checksums` its checksums. `run` opens an existing run, `rows` are its
types. `fold` and `summary` make its sums, `measures` lists all measures. All other rooms of evals use this one.
"""
