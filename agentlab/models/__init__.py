"""Language models: each file or package is one provider, and its `connect(name, **options)` returns a `Model`.

The name of the file is the name of the provider: `openai/gpt-x` is `openai.connect("gpt-x")`. A provider imports its
SDK when it connects.

Providers: `openai`, `azure`, `gemini`, `local/`, `scripted` (for tests). `embedders/`: embedders. Shared code:
`provider` (the base of a provider), `keys` (API keys and their pauses), `openai_connection`; `chat_model` with
`chat_writing`, `chat_parameters`, `chat_reading` and `refusals` (errors of servers, and the wait they ask for).
`agentlab doctor` knows a new provider by `KEYS` and `EXTRAS` in cli/doctor.py, its price by core/prices.yaml.
Pieces: `sse` (events of a body), `gemini_calls` (calls of a stream).
Weights: `weights`, `sources`, `hub_files`, and `catalogue.yaml` with their hashes.
"""
