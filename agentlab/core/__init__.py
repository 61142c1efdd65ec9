"""The values everything else is made of: messages, events, traces, errors, and the shapes of a session's parts.

Imports no other room; all of it may be imported from anywhere. Plain values and pure functions, but for `files` and
`jsonl`, which read and write, and `plugins`, which imports what a name stands for.
"""
