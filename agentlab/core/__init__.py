"""Plain values and pure functions that every other room uses. Imports no other room.

`messages`, `events`, `trace`, `stream`: messages and replies; events of a turn; a trace, its sums and its latency; live
events. `thoughts`: thoughts split from text.
`protocols`, `state_key`: the interfaces of model, embedder, index, memory (with its thresholds of relevance and of
duplicates), tool and gateway; state of a session.
`constants`, `errors`, `version`: names in traces and modes of a run; all exceptions; the version.
`plugins`: finds flows, providers, tools and scorers by name and imports them.
`files`, `jsonl`, `strict_json`, `scratch`: atomic writes and bounded reads; rows; JSON and YAML; temporary folders.
`schemas`, `prices` with `prices.yaml`, `vectors`: JSON schemas of tools; cost of a completion; unit vectors.
`escaping`, `secrets`, `gc_tuning`: safe output of untrusted text; redaction; Python's garbage collector.
"""
