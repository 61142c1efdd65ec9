"""All calls that leave the process: they are keyed, looked up, merged, queued, retried and recorded here.

`gateway`: `Gateway`, the way of one call: look-up, single flight, attempts, recording.
`recorder`: `Recorder` with the mode of a run, and recorded vectors. `recordings`, `recording_schema`: files, entries.
`keys`: the key of each call. `explain`: the reason of a recording miss, field by field.
`queue`: models and embedders behind their queues. `limits`: rate limits. `retries`: attempts and pauses.
`offline`: connections that a replay refuses. `response_validation`: checks of a completion, such as token counts and
tool calls.
"""
