"""Statistics on arrays: intervals, sign flips, sequential tests, sample sizes, agreement. No module here reads a run.

Import functions from their modules. These modules import nothing of the package but core.
"""
