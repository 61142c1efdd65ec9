"""Long-term memory of users. Each file is one backend with `connect(location, embedder, user=...) -> Memory`.

    memory = sqlite.connect(Path("state"), embedder, user="ann")
    added = await memory.add(text, vector, created=now, new_id=new_id)
    facts = await memory.search(question, question_vector, top_k=3)

The caller embeds texts with `memory.embedder`, so that an embedding is counted, recorded and replayed like any other
call. The caller passes ids and times for the same reason. `location` is a folder; each backend has its own files in it.
So two backends can share the folder. For a database server, `location` is the name of the store.

The contract is `agentlab.core.protocols.Memory`, which also has the threshold of duplicates. `base` holds the code
that all backends share, `exact` the search of
those that search in this process. The layered agent and the backend `textfile` write their text files with
`tagged_log`.

Backends: `sqlite` (the default), `textfile`, `chroma` with `chroma_check`, `mongo`. `unavailable` stands in for a
memory that cannot be opened.
"""
