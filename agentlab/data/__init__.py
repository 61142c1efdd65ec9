"""Data sets: conversations, memory sets and documents, read strictly, with file and line in each error.

`datasets`: `load_dataset`, `Dataset`, sampling, `add_conversation`. `conversations`: keys of a turn and a conversation.
`memory_sets`: sessions and questions. `documents`: corpora from JSONL or folders; `markup`, `office_documents`: files.
`questions`, `tables`, `columns`, `cell_formats`: conversations of a spreadsheet; its cells as it shows them.
`encodings`, `office_files`, `repeated_lines`: decoding, safe archives, lines that repeat over pages.
`catalogue`, `context`: documents and passages as prompts show them. `lint`: valid rows that are probably mistakes.
"""
