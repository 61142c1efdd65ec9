"""A run folder read back: scores, summary and tables, all folded from its rows.

Import `open_run` and `Run` from `run`; `reuse` tells what came from recordings, `graders` what graded it.
"""
