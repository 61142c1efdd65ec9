"""Long-term memory of users, one backend a file; each file has `connect(where, embedder, user=...) -> Memory`.

    memory = sqlite.connect(Path("state"), embedder, user="ann")
    added = await memory.add(text, vector, created=now, new_id=new_id)
    facts = await memory.search(question, question_vector, top_k=3)

Whoever asks embeds the text with `memory.embedder`, so that an embedding can be counted, recorded and replayed like any
other call; ids and times are handed in for the same reason. `where` is a folder, in which every backend has its own
files, so that two of them can share it; for a database server it is the name of the store. The contract is
`agentlab.core.protocols.Memory`; what the backends share is in `base`, and in `exact` for those that search in this
process. `tagged_log` is the text file that the layered agent and the backend `textfile` write.
"""
