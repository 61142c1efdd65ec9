"""Scores of a turn: the one grader, the fingerprints of what graded, and grading again what was played before.

Import `grade` from `grader`, `fingerprints` from `fingerprints`; `imported` grades answers of other systems.
"""
