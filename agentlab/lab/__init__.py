"""Python entry points: `Lab` runs a spec, `Chat` talks to one of its flows. No room below imports them.

`lab`: `Lab`. `run`: `Run` with its tables, figures, causes and page. `chat`, `chat_export`: `Chat`, and saving it.
`receipts`: a chat's lines on its memory.
`forks`: continues a recorded run. `regrading`: `score`. `judging`: `judge` with its default model.
"""
