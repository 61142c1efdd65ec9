"""The one way out of the process: every call is keyed, looked up, shared, queued, retried and recorded here.

Import `Gateway` and `Recorder` from `gateway`, `Recordings` from `recordings`; the rest is theirs.
"""
