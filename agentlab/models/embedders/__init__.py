"""Sentence embedders: each file is one provider and has `connect(name, **options) -> Embedder`.

The file name is the provider: `local/all-minilm-l6-v2` is `local.connect("all-minilm-l6-v2")`. Vectors are unit rows
rounded to float16 (`agentlab.core.vectors`), so that recorded and live vectors are equal.

`local`: the default, all-MiniLM-L6-v2. `hashing`: no weights. `openai`, `azure`: servers (`openai_embedder`).
`sentence_transformers`: any model.
"""
