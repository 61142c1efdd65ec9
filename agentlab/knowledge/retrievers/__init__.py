"""Retrievers, one a file: each has `async def open_index(corpus, settings) -> Index` and optional `Settings`.

`dense`, `bm25`, `hybrid`: the index of `agentlab.knowledge.index`. `chroma`: a collection of Chroma. The file name is
`retrieval.method` in a spec; the other keys of `retrieval` are the retriever's settings. An index with an attribute
`source` is outside this process: its searches are recorded. `needs_documents(settings)` returns False if a data set
without documents will do.
"""
