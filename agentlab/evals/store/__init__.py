"""A run folder: how it is written, sealed and read back as rows, columns, sums and measures.

`folder` writes it, `ledger` its events, `seal` closes it; `run` opens one that is there, `rows` are its types,
`fold` and `summary` its sums, `measures` what can be compared. Everything else in evals stands on it.
"""
