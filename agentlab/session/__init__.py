"""The session: the traced verbs of one conversation, which a flow calls.

`session`: `Session` with `complete`, `retrieve`, `call_tool`, prompts, ids, drafts and the token limit of a request.
`traced`: the settings of a session (`Has`, `Bounds`, `Files`, `Generation`) and the verbs step, decide, notify, fetch.
`own_searches`: searches that a flow makes itself. `memory_verbs`: recall, remember and revise. `background`: parallel
work, and work after the reply.
`clock`: the position and modelled time of each event. `history`: the stored messages.
"""
