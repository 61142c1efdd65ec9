"""Search in documents: passages, index, and the citations of a reply.

`passages`: `split` and the estimate of tokens; `retrieval.max_tokens` in workbench/spec.py is their size. `index`:
`open_index`, dense, BM25 and hybrid search. `bm25`, `words`: BM25. `retriever`: retrievers by name, and functions of
the user. `retrievers/`: the plug-ins.
`citations`: the passages that a reply cites. `refusal`: replies that decline. `small_talk`: messages without a
question (words in `small_talk.yaml`). `intent`: messages that tell, ask or greet.
"""
