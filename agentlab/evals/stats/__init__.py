"""Numbers in, numbers out: intervals, sign flips, spending of alpha, agreement; it knows nothing of runs.

Import functions from their modules. Nothing here imports anything of ours but core.
"""
