"""Language models: each file or package is one provider, and its `connect(name, **options)` returns a `Model`.

The name of the file is the name of the provider: `openai/gpt-x` is `openai.connect("gpt-x")`. A provider imports its
SDK when it connects.

Providers: `openai`, `azure`, `gemini`, `local/`, `scripted` (for tests). `embedders/`: embedders. Shared code:
`provider` (the base of a provider), `keys`; `chat_model` with `chat_writing`, `chat_parameters`, `chat_reading` and
`refusals`; `openai_connection`, `azure_connection`, `bounded_http`.
Weights: `weights`, `sources`, and `catalogue.yaml` with their hashes.
"""
