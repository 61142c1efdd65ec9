"""Answers that others have published: imported as runs, graded by their authors' rules, held against their figures.

`importing` writes the run folder, `graders` are the rules, `reproduce` holds figures beside each other, `unsaid` tells
what the authors did not: paired differences with intervals.
"""
