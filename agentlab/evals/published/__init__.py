"""Answers of other systems: imported as runs, graded by their authors' rules, compared with their published figures.

`predictions` reads the answers, and `importing` writes the run folder. `graders` and `bleu` hold the rules. `reproduce`
compares figures, and adds what publications leave out: paired differences with intervals. `page` renders the result.
"""
