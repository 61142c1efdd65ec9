"""Answers of other systems: imported as runs, graded by their authors' rules, compared with their published figures.

`importing` writes the run folder. `graders` holds the rules. `reproduce` compares figures. `significance` adds what
publications leave out: paired differences with intervals. `page` renders the result.
"""
