"""Command `agentlab`: its parser, its commands and their output. `main` of `parser` is the entry point.

`parser`, `options`, `help/`: the commands, their flags, their help texts and examples.
`commands`: run, replay, gate, fork. `show_commands`: show, report, compare, cost, memory, export.
`published`: import, score, reproduce. `judging`: judge. `listing`: list. `project`: init, lint, pull. `doctor`: doctor.
`own_data`: a data set from a spreadsheet and a folder. `pinning`: hashes of hub files in a spec.
`chat`, `chat_screen`, `interrupts`: the chat, its screen, Ctrl-C.
`terminal`: the table of a run, and which of its rows are shown. `comparing`: comparisons with their columns, and gate
verdicts.
`progress`: progress bars, and the line of each step. `echo`: printing.
`template/`: the files that `agentlab init` copies.
"""
