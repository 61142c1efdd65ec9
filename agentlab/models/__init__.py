"""Language models, one provider a file or package; each has `connect(name, **options)`, which returns a `Model`.

The name of the file is the provider: `openai/gpt-x` is `openai.connect("gpt-x")`. What the adapters share is in
`provider`, `keys`, `openai_connection` and `weights`; an SDK is imported where its adapter connects.
"""
