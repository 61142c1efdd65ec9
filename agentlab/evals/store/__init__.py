"""Run folders: their files, checksums, rows, sums and measures. All other folders of evals use it.

`folder`: writes and reads a run folder, `run.log` included. `ledger`: `calls.jsonl`. `rows`: types of all rows, with
the columns of a turn. `run`: `StoredRun`, a run to read, the facts of its memories, and notes on its judges.
`measures`: every measure with its title and format, and the rows of a run's table. `frames`: data frames.
`fold`, `summary`: running sums; `summary.json` with its recorded and new calls.
`checksums`: checksums, and folders written completely or not at all. `progress`: progress of a run.
"""
