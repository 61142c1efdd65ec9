"""Grading of turns: the grader, fingerprints of its code, and regrading of finished runs.

Import `grade` from `grader` and `fingerprints` from `fingerprints`; `imported` grades answers of other systems.
"""
