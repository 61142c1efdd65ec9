"""What is put into a run: conversations, memory sets and documents, read strictly, with file and line in each error.

Import `load_dataset` from `datasets`, row types from `conversations` and `memory_sets`, documents and how they are
shown from `documents`, `catalogue` and `context`; `lint` looks for
what can be read and hardly be meant.
"""
