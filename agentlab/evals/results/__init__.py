"""A run folder read back: its rows as types, and scores, summary and data frames, all folded from them.

Import `open_run` and `Run` from `run`, the types from `rows`, `finish` from `grading`; `reuse` tells what came from
recordings, `graders` what graded it. `show` puts a conversation side by side, `tables` fits what is printed to a width.
"""
